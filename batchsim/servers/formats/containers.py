"""Commands of containers in manifests of Kubernetes and in docker compose: each word with its place."""

import re
from collections.abc import Iterator

from batchsim.servers.formats.document import Node, Source
from batchsim.servers.formats.keyed_text import parse_yaml
from batchsim.servers.formats.shell import Command, Word, commands, expanded, inside

_SIGN = re.compile(r"^(kind|services)[ \t]*:", re.MULTILINE)


def commands_of(text: str) -> list[Command]:
    """Return the commands of a manifest's containers, or of a shell's text."""
    if not _SIGN.search(text):
        return commands(text)
    try:
        roots = parse_yaml(text)
    except ValueError as error:
        hint = "; a template must be rendered first, as by `helm template`" if "{{" in text else ""
        raise ValueError(f"{error}{hint}") from None
    return [
        command
        for root in roots
        for container, replicas in _containers(root, None)
        for command in _commands(text, container, replicas, image="services" in root.items)
    ]


def _containers(node: Node, replicas: Node | None) -> Iterator[tuple[Node, Node | None]]:
    """Yield the containers, each with the number of its replicas."""
    if isinstance(node.value, dict):
        replicas = node.items.get("replicas") or node.find("deploy.replicas") or replicas
        if "image" in node.items:
            yield node, replicas
    for inner in node.items.values():
        yield from _containers(inner, replicas)


def _commands(text: str, container: Node, replicas: Node | None, *, image: bool) -> list[Command]:
    """Return the commands of a container; `image`: whether its command are arguments of its image."""
    items, variables = container.items, dict[str, Word]()
    for name, node in _environment(container):
        value = _word(text, node)
        variables[name] = Word(
            type(value.text)(f"{name}={value.text}"), f"{name}={value.raw}", value.at - len(name) - 1
        )
    known: dict[str, list[Word] | None] = {name: [word.value] for name, word in variables.items()}
    keys = ["image"] if image or "command" not in items else []
    keys += [key for key in ("entrypoint", "command", "args") if key in items]
    words = [
        each for key in keys for word in _words(text, items[key]) for each in expanded(word, known)
    ]  # fmt: skip
    first = items[keys[-1]].items.get("0")
    item = ""
    if first is not None:
        line = text[text.rfind("\n", 0, first.span[0]) + 1 : first.span[0]]
        item = f"\n{line}" if line.strip() == "-" else ", "
    count = replicas.value if replicas is not None and isinstance(replicas.value, int) else 1
    return inside(Command(words, variables, item=item, replicas=count), known) if words else []


def _environment(container: Node) -> Iterator[tuple[str, Node]]:
    """Yield the names and values of the environment variables that a container gives."""
    for node in (container.items[key] for key in ("env", "environment") if key in container.items):
        for name, each in node.items.items():
            if {"name", "value"} <= each.items.keys():  # of Kubernetes
                yield str(each.items["name"].value), each.items["value"]
            elif isinstance(node.value, dict):
                yield name, each
            elif isinstance(each.value, str) and "=" in each.value:
                name, _, value = each.value.partition("=")
                yield name, Node(value, each.at, (each.span[1] - len(value), each.span[1]))


def _words(text: str, node: Node) -> list[Word]:
    """Return the words of a list, or of a text that a shell would split."""
    if isinstance(node.value, list):
        return [_word(text, each) for each in node.items.values()]
    word = _word(text, node)
    return [each for command in commands(word.raw, word.at) for each in command.words]


def _word(text: str, node: Node) -> Word:
    raw, at, plain = text[slice(*node.span)], node.span[0], str(node.value)
    if raw[:1] in ("'", '"'):
        raw, at = raw[1:-1], at + 1
    elif raw[:1] in ("|", ">"):  # a block, below its sign
        below = raw.partition("\n")[2]
        raw, at = below.replace("\n", " ") if raw[0] == ">" else below, at + len(raw) - len(below)
    return Word(Source(plain) if re.search(r"\$[({]|\{\{", plain) else plain, raw, at)
