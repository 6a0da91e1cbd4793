"""The pages of the API reference: a test checks that every public name is on one of them."""

import inspect
from collections.abc import Mapping

from docstrings import to_rst

import batchsim as bs
from batchsim.scenario import RULES, WORKLOADS
from batchsim.scenario.rules import RULES_OF_SIZES

# The title of a page, its first sentence, and its names, in the order in which a reader meets them.
PAGES = {
    "scenarios": (
        "Scenarios: the question",
        "Workload, rule, service time, and number of servers.",
        ["Scenario", "Autoscale", *(workload.__name__ for workload in WORKLOADS), "OpenLoop", "Trace",
         "Affine", "Table", "Noise", "PaddedTime", "PackedTime", "SizeTable", "published", "published_names",
         "published_source", "published_watts", "LoadTest", "load_test", "load_command", "calibrate",
         "predict", "Calibration"],
    ),
    "rules": (
        "Rules: when a batch leaves",
        "The textbook's rule, its relatives, and the rules of real servers; `servers` has presets of these.",
        [*(rule.__name__ for rule in (*RULES, *RULES_OF_SIZES)), "Rule", "Trigger", "START",
         "FREEZE", "REFUSE", "NOTHING", "FULL", "WAIT", "BACKLOG", "DRAIN", "ENOUGH", "later", "oldest_s"],
    ),
    "tokens": (
        "Token generation",
        "Requests with prompts and outputs, and servers that make their tokens step by step.",
        [
            "Tokens", "Lognormal", "Geometric", "Uniform", "PrefixGroups", "HashIds", "Continuous",
            "StepTime", "kv_blocks",
        ],
    ),
    "results": (
        "Runs and results",
        "Simulating a scenario, reading the result, and comparing two results.",
        ["simulate", "Result", "Batches", "Status", "compare", "Comparison"],
    ),
    "studies": (
        "Many scenarios: choosing a setting",
        "Sweeps over knobs, the setting that meets an objective, and the highest rate at which it does.",
        ["SLO", "sweep", "tune", "Range", "Recommendation", "capacity", "Capacity", "compare_servers",
         "compare_routing"],
    ),
    "pictures": (
        "Pictures",
        "The explorer, films, live figures, and pictures of a run or of many.",
        ["explore", "figure", "film", "lanes", "plot", "heat_map", "frontier", "capacity_curves"],
    ),
    "batcher": (
        "The batcher itself",
        "The textbook's batcher, on any clock.",
        ["InferenceBatcher", "batch_inference"],
    ),
}  # fmt: skip
ROOMS = {
    "routing": "Where a request goes, of several replicas",
    "servers": "Real servers, with their own parameter names",
    "device": "Real models, on the wall clock",
    "theory": "Queueing theory",
    "teaching": "Predictions and exercises",
}
DATA = {
    "START": "The action of `decide` that sends the oldest requests to a server: {}.",
    "FREEZE": "The action of `decide` that makes a batch of the oldest, which waits for a server: {}.",
    "REFUSE": "The action of `decide` that rejects the oldest: {}.",
    "NOTHING": "The action of `decide` that waits: {}.",
    "FULL": "`Trigger.FULL` as a number, which rules return: {}.",
    "WAIT": "`Trigger.WAIT` as a number: {}.",
    "BACKLOG": "`Trigger.BACKLOG` as a number: {}.",
    "DRAIN": "`Trigger.DRAIN` as a number: {}.",
    "ENOUGH": "`Trigger.ENOUGH` as a number: {}.",
    "ROUTINGS": "The routings, in order: {}.",
    "NAMES": "The routings by their names: {}.",
    "SERVERS": "The servers that compute requests in batches, by their names: {}.",
    "SIZE_SERVERS": "The servers that limit the sizes of batches, by their names: {}.",
    "TOKEN_SERVERS": "The servers that generate tokens, by their names: {}.",
    "EXERCISES": "The exercises of the lessons, by their numbers: {}.",
    "SERVICE": "The service time of most lessons and exercises: {}.",
    "SEED": "The seed of most lessons and exercises: {}.",
}


def page(title, introduction, module, names):
    """Return a page of reStructuredText that describes names of a module."""
    lines = [title, "=" * len(title), "", introduction, "", f".. currentmodule:: {module.__name__}", ""]
    for name in names:
        lines += [f"``{name}``", "-" * (len(name) + 4), "", *entry(module, name), ""]
    return "\n".join(lines) + "\n"


def entry(module, name):
    """Return the lines that describe one public name."""
    thing = getattr(module, name)
    if inspect.isclass(thing) and issubclass(thing, bs.Rule) and thing is not bs.Rule:
        # `Rule` documents the interface of all rules once.
        return [f".. autoclass:: {name}", f"   :exclude-members: {', '.join(asked_of(thing))}"]
    if inspect.isclass(thing):
        return [f".. autoclass:: {name}"]
    if callable(thing):
        return [f".. autofunction:: {name}"]
    value = ", ".join(f"``{key}``" for key in thing) if isinstance(thing, Mapping) else f"``{thing!r}``"
    return [f".. py:data:: {name}", "", f"   {DATA[name].format(value)}"]


def asked_of(rule):
    """Return the names that all rules have, without the rule's own parameters."""
    every = {*dir(bs.Rule), *inspect.get_annotations(bs.Rule), "Params"}
    return sorted(name for name in every - set(rule.__dataclass_fields__) if not name.startswith("_"))


def pages():
    """Return the text of each page by its file name: those of `batchsim`, and one for each subpackage."""
    made = {name: page(*words, bs, names) for name, (*words, names) in PAGES.items()}
    for name, title in ROOMS.items():
        room = getattr(bs, name)
        introduction = inspect.cleandoc(room.__doc__ or "").splitlines()
        to_rst(introduction)
        made[name] = page(title, "\n".join(introduction), room, room.__all__)
    return made


def missing():
    """Return the public names that are not on exactly one page, and names on a page that are not public."""
    told = [name for *_, names in PAGES.values() for name in names] + list(ROOMS)
    return set(bs.__all__) ^ set(told) | {name for name in told if told.count(name) > 1}
