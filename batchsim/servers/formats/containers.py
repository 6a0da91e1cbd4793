"""Commands of containers and services, each word with its place.

They stand in manifests of Kubernetes, docker compose, Dockerfiles and systemd's units.
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from batchsim.servers.formats import shell
from batchsim.servers.formats.document import Node, Source
from batchsim.servers.formats.keyed_text import RENDERED, parse_yaml
from batchsim.servers.formats.shell import Command, Known, Remark, Word, commands, expanded, inside

_TEMPLATE = re.compile(r"(?<=[:\-,\[] )\{\{[^{}\n]*\}\}|(?<=:)\{\{[^{}\n]*\}\}")  # as a value without quotes
_TEMPLATED = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n|---[^\n]*\n)*[ \t]*\{\{")  # from its first line on
_SCALED = re.compile(r"^kind[ \t]*:[ \t]*(HorizontalPodAutoscaler|ScaledObject)\b", re.MULTILINE)
OF_WORKERS = Node(0, 0, (0, 0))  # the replicas of those that a leader stands for
MOST_MANIFESTS = 50  # in a script
END = ";"  # of a command among those of a text
_FILES = ("envFrom", "env_file")  # which set variables of a container
ELSEWHERE = "variables of another file are not read, and may set more"
OTHERS = "only the command of this file is read: the rest may set replicas and limits"
_RUN = re.compile(r"(^|_)(run|command|cmd|script|shell|entrypoint)$")  # a key whose text is a script
# Of a container in a part of a manifest; the last two of Beaker.
_KEYS = {"command", "args", "env", "environment", "arguments", "envVars"}
_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)(?P<end>\w+)\1")
_DOCKERFILE = re.compile(r"(?i)(?:[ \t]*(?:#[^\n]*|ARG[ \t][^\n]*)?\n)*[ \t]*FROM[ \t]")
_MAKEFILE = re.compile(r"^[\w.-]+[ \t]*:[^=\n]*\n\t", re.MULTILINE)
_UNIT = re.compile(r"^(ExecStart[ \t]*=|\[Container\])", re.MULTILINE)
_CONTINUED = re.compile(r"\\{1,2}[ \t]*\r?\n(?:[ \t]*[#;][^\n]*\n)*")
_INSTRUCTION = re.compile(
    r"^[ \t]*(?P<key>[A-Za-z]+)(?:[ \t]*=[ \t]*((?<=ExecStart=)[-@:+!]+)?|[ \t]+)"
    rf"(?P<rest>(?:{_CONTINUED.pattern}|[^\n])*)",
    re.MULTILINE,
)


def commands_of(text: str) -> list[Command]:
    """Return the commands of a manifest's containers, of a Dockerfile or unit, or of a shell's text."""
    if _TEMPLATED.match(text):
        raise ValueError(f"the text must be a script or a manifest, got a template{RENDERED}")
    if _DOCKERFILE.match(text):
        return _of_dockerfile(_without_heredocs(text))
    if _UNIT.search(text) and not _HEREDOC.search(text):
        return _of_unit(text)
    if _MAKEFILE.search(text):
        raise ValueError("the text must be a script or a manifest, got a Makefile: read a recipe's command")
    if shell.YAML.match(text):
        return _of_manifest(text)
    script = shell.Script({})
    script.read(text)
    found, count = script.commands(), len(script.manifests)
    if count > MOST_MANIFESTS:
        raise ValueError(f"a script must have at most {MOST_MANIFESTS} manifests, got {count:,}")
    for begin, end in script.manifests:  # that the script applies or saves
        with contextlib.suppress(ValueError):
            part = _blanked(text[:begin]) + text[begin:end]
            found += _of_unit(part, script.known) if _UNIT.search(part) else _of_manifest(part)
    return found


def _blanked(text: str) -> str:
    """Return blanks in place of a text, with its ends of lines."""
    return re.sub(r"[^\r\n]", " ", text)


def _without_heredocs(text: str) -> str:
    lines, parts, end = text.splitlines(keepends=True), list[str](), ""
    last = {line.strip(): number for number, line in enumerate(lines)}
    for number, line in enumerate(lines):
        match = None if end else _HEREDOC.search(line)
        parts.append(_blanked(line) if end else line)
        if match and last.get(match["end"], 0) > number:
            end = match["end"]
        elif line.strip() == end:
            end = ""
    return "".join(parts)


def _of_manifest(text: str) -> list[Command]:
    roots = parse_yaml(_TEMPLATE.sub(lambda each: re.sub(r"\W", "_", each[0]), text))
    maps = {_name(root): root for root in roots if "data" in root.items and _name(root)}
    scaled = [
        Remark(each.start(), f"a {each[1]} is not simulated: the number of replicas stays")
        for each in _SCALED.finditer(text)
    ]
    every = [(root, *each) for root in roots for each in _containers(root, None)]
    # The replicas of KServe's services by their runtime, whose command may stand in the same text.
    served = {str(use.value): count for _, each, count in every if (use := each.items.get("runtime"))}
    used = {_name(root) for root in roots if "Runtime" in str(getattr(root.find("kind"), "value", ""))}
    found = [
        command
        for root, container, replicas in every
        if _KEYS & {*container.items} or {"kind", "services"} & {*root.items}
        if _KEYS & {*container.items} or str(container.items.get("runtime", root).value) not in used
        for command in _commands(
            text, container, served.get(_name(root), replicas), maps, image="services" in root.items
        )
    ]
    for root in roots:
        other = [] if {"kind", "services"} & {*root.items} else [Remark(root.at, OTHERS)]
        for script in (_word(text, node) for node in _scripts(root)):
            those = commands(script.raw, script.at, None, script.text)
            found += [replace(each, remarks=each.remarks + other) for each in those]
    users = {word.text.rpartition("/")[2]: each for each in found for word in each.words}
    data = [each for root in maps.values() for each in root.items["data"].items.items()]
    for key, node in data:  # scripts, and who runs them
        script, user = _word(text, node), users.get(key, Command())
        if key in users or key.endswith(".sh") or script.raw.lstrip().startswith("#!"):
            with contextlib.suppress(ValueError):  # it may be of another language
                for inner in commands(script.raw, script.at, _all_known(user.variables), script.text):
                    inner.variables = user.variables | inner.variables
                    inner.remarks, inner.replicas = [*user.remarks, *inner.remarks], user.replicas
                    found.append(inner)
    return [replace(command, remarks=[*command.remarks, *scaled]) for command in found]


def _name(root: Node) -> str:
    return "" if (found := root.find("metadata.name")) is None else str(found.value)


def _containers(node: Node, replicas: Node | None) -> Iterator[tuple[Node, Node | None]]:
    """Yield the containers, each with the number of its replicas."""
    if isinstance(node.value, dict):
        own = (node.find(path) for path in ("replicas", "minReplicas", "deploy.replicas", "scale"))
        replicas = next((each for each in own if each is not None), replicas)
        if _is_container(node):
            yield node, replicas
    for name, inner in node.items.items():
        worker = name == "workerTemplate" and "leaderTemplate" in node.items
        yield from _containers(inner, OF_WORKERS if worker else replicas)


def _scripts(node: Node) -> Iterator[Node]:
    """Yield the texts that a program runs as commands, such as Ray's entrypoints, outside of containers."""
    for name, inner in () if _is_container(node) else node.items.items():
        if _RUN.search(name) and isinstance(inner.value, str):
            yield inner
        yield from _scripts(inner)


def _is_container(node: Node) -> bool:
    return _image(node) is not None or ("build" in node.items and bool(_KEYS & {*node.items}))


def _image(container: Node) -> Node | None:
    """Return a container's image, or the format of a model, whose runtime is elsewhere."""
    paths = ("image", "modelFormat.name", "image.docker", "image.beaker")
    found = [node for path in paths if (node := container.find(path)) and isinstance(node.value, str)]
    return found[0] if found else None


def _commands(
    text: str, container: Node, replicas: Node | None, maps: dict[str, Node], *, image: bool
) -> list[Command]:
    """Return the commands of a container; `image`: whether its command are arguments of its image."""
    items, variables = container.items, dict[str, Word]()
    for name, node in _environment(container, maps):
        variables[name] = _variable(name, _word(text, node))
    known = _all_known(variables)
    keys = [key for key in ("entrypoint", "command", "args", "arguments") if key in items]
    own = _image(container)
    words = [_word(text, own)] if own and ("entrypoint" if image else "command") not in items else []
    words += [each for key in keys for word in _words(text, items[key]) for each in expanded(word, known)]
    found = Command(words, variables)
    origin = own or items["build"]
    line = text[text.rfind("\n", 0, origin.at) + 1 : origin.at]
    if (first := items[keys[-1]].items.get("0") if keys else None) is not None:
        line = text[text.rfind("\n", 0, first.span[0]) + 1 : first.span[0]]
        found.item = f"\n{line}" if line.strip() == "-" else ", "
    elif not keys and not line.strip(" -"):
        key = "command" if image else "args"
        found.alone = origin.stop, f"\n{line.replace('-', ' ')}{key}: [{{}}]"
    if replicas is OF_WORKERS:
        found.replicas = 0
    elif replicas is not None:
        (count,) = expanded(_word(text, replicas), known) or [Word("", "", 0)]
        if count.text == "0":
            found.remarks.append(Remark(replicas.at, "replicas is 0: batchsim starts one"))
        if count.text.isdecimal():
            found.replicas = max(int(count.text), 1)
        elif isinstance(count.text, Source):
            rule = f"replicas must be a literal value, got {count.text}"
            found.remarks.append(Remark(replicas.at, rule + RENDERED, "refusal"))
    if "modelFormat" in items:
        found.remarks.append(Remark(origin.at, "the runtime of this format is not read, and may set more"))
    for node in (items[key] for key in _FILES if key in items):
        if not node.items or any(_map_of(each, maps) is None for each in node.items.values()):
            found.remarks.append(Remark(node.at, ELSEWHERE, "variables"))
    return inside(found, known) if words else []


def _map_of(node: Node, maps: dict[str, Node]) -> Node | None:
    """Return the variables of a ConfigMap of the same text."""
    name = node.find("configMapRef.name")
    return maps[str(name.value)].items["data"] if name is not None and str(name.value) in maps else None


def _all_known(variables: dict[str, Word]) -> Known:
    return {name: _known(word.value) for name, word in variables.items()}


def _known(value: Word) -> list[Word]:
    """Return the words of a variable's value, which a shell splits."""
    plain = value.raw[:1] not in ("'", '"')
    words = shell.split(Word(value.text, f'"{value.raw}"', value.at - 1) if plain else value)
    return words if len(words) > 1 else [value]


def _instructions(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield the instructions of a text, each with what is behind it on one line, and where that begins."""
    for match in _INSTRUCTION.finditer(text):
        rest = _CONTINUED.sub(lambda each: " " * len(each[0]), match["rest"])
        yield match["key"], rest, match.start("rest")


def _of_unit(text: str, known: Known | None = None) -> list[Command]:
    """Return the commands of a unit of systemd, whose empty ExecStart removes those before, or of Quadlet."""
    found, variables, known = list[Command](), dict[str, Word](), Known(known or {})
    image, unread = list[Word](), list[Remark]()
    for key, rest, at in _instructions(text):
        if key == "Environment":
            _set(rest, at, variables, known)
        elif key == "EnvironmentFile":
            unread.append(Remark(at, ELSEWHERE, "variables"))
        elif key == "ExecStart":
            found = [*found, *commands(rest, at, known)] if rest.strip() else []
        elif key == "Image":  # of a container, with arguments in Exec
            image, found = shell.words_of(rest, at), [Command(shell.words_of(rest, at))]
        elif key == "Exec":
            found = [Command([*image, *shell.words_of(rest, at)])]
    for command in found:
        command.variables, command.remarks = variables | command.variables, [*command.remarks, *unread]
    return found


def _of_dockerfile(text: str) -> list[Command]:
    """Return the commands of the last stage, with what it has from the stages on which it builds."""
    stages, known = dict[str, dict[str, Any]](), Known()
    before: dict[str, Any] = {"ENV": {}}
    stage = before
    for name, rest, at in _instructions(text):
        if (key := name.upper()) == "FROM":
            names = [each for word in shell.words_of(rest, at) for each in expanded(word, known)]
            names = [word for word in names if not word.text.startswith("--")] or [Word("", "", at)]
            before = stages.get(names[0].text, {"ENV": {}, "image": names[0]})
            stage = stages[names[-1].text] = {**before, "ENV": dict(before["ENV"])}
        elif key in ("ARG", "ENV"):
            _set(rest, at, stage["ENV"] if key == "ENV" else {}, known)
        elif key in ("ENTRYPOINT", "CMD"):
            if key == "ENTRYPOINT" and "CMD" in stage and stage["CMD"] is before.get("CMD"):
                del stage["CMD"]  # of the stage before
            if rest[:1] == "[":
                words = _words(" " * at + rest, parse_yaml(" " * at + rest)[0])
                stage[key] = [Command(words, item=", ")]
            else:
                stage[key] = commands(rest, at, dict(known))
    first, last = stage.get("ENTRYPOINT"), stage.get("CMD", [])
    lists = [each for each in (first, last) if each and each[0].item]
    if lists and (first is None or first[0].item):  # the arguments follow the command
        words = [] if first else [stage["image"]]
        last = [Command([*words, *(word for each in lists for word in each[0].words)], item=", ")]
    elif not (last := first or last) and "image" in stage:
        last = [Command([stage["image"]], alone=(len(text.rstrip()), "\nCMD [{}]"))]
    for command in last:
        command.variables = stage["ENV"] | command.variables
    return [inner for command in last for inner in inside(command, known)]


def _set(rest: str, at: int, variables: dict[str, Word], known: Known) -> None:
    """Set the variables of an instruction, written as A=1 B=2, "A=1", or A 1."""
    words = shell.words_of(rest, at)
    if words and "=" not in words[0].text:
        words = [_variable(words[0].text, word) for word in words[1:2]]
    for word in words:
        if word.raw[:1] in ("'", '"'):
            word = Word(word.text, word.raw[1:-1], word.at + 1)
        name, value = word.text.partition("=")[0], expanded(word.value, known)
        if len(value) == 1:
            variables[name], known[name] = _variable(name, value[0]), _known(value[0])


def _variable(name: str, value: Word) -> Word:
    """Return a variable with its value, as a shell would have it in one word."""
    text = type(value.text)(f"{name}={value.text}")
    return Word(text, f"{name}={value.raw}", value.at - len(name) - 1)


def _environment(container: Node, maps: dict[str, Node]) -> Iterator[tuple[str, Node]]:
    """Yield the names and values of the environment variables that a container gives."""
    for node in container.items.get("envFrom", Node([], 0, (0, 0))).items.values():
        yield from ({} if (data := _map_of(node, maps)) is None else data.items).items()
    for node in (container.items[key] for key in ("env", "environment", "envVars") if key in container.items):
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
    found, end = commands(word.raw, word.at, None, word.text), Word(END, END, word.at)
    return [each for command in found for each in (*command.words, end)][:-1]


def _word(text: str, node: Node) -> Word:
    raw, at, plain = text[slice(*node.span)], node.span[0], str(node.value)
    if raw[:1] in ("'", '"'):
        raw, at = raw[1:-1], at + 1
    elif raw[:1] in ("|", ">"):  # a block, below its sign
        below = raw.partition("\n")[2]
        raw, at = below, at + len(raw) - len(below)
    if text[node.span[0] : node.span[0] + 1] != "|":  # its lines are one, with or without a backslash
        raw = re.sub(r"(?<=\n)[ \t]*#[^\n]*|\\?\n", lambda part: " " * len(part[0]), raw)
    plain = raw if "{{" in raw and "{{" not in plain else plain  # as blanked in `_of_manifest`
    return Word(Source(plain) if re.search(r"\$[({]|\{\{", plain) else plain, raw, at)
