"""YAML, read by PyYAML's safe loader, with the place of each key."""

from collections.abc import Mapping
from typing import Any

from batchsim.servers.formats.document import Place, refused

Places = dict[tuple[str, ...], Place]


def documents(text: str) -> list[tuple[Any, Places]]:
    """Return each document of a text, and where the values of its keys stand, by their path.

    Raises ValueError with line and column for what is no YAML, or says a key twice.
    """
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        found = []
        while loader.check_node():
            node = loader.get_node()
            places: Places = {}
            _mark(node, (), places, set())
            found.append((loader.construct_document(node), places))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = None if mark is None else (mark.line + 1, mark.column + 1)
        raise refused(str(error.problem or error.context), place) from None
    except yaml.YAMLError as error:
        raise ValueError(f"the text must be YAML, got {str(error).splitlines()[0]}") from None
    return found or [({}, {})]


def _mark(node: Any, path: tuple[str, ...], places: Places, seen: set[int]) -> None:
    if node.id != "mapping" or id(node) in seen:  # what an alias stands for is marked once
        return
    seen.add(id(node))
    for key, value in node.value:
        here = (*path, str(key.value))
        place = (key.start_mark.line + 1, key.start_mark.column + 1)
        if here in places:
            raise refused(f"a key must be given once, got {key.value} twice", place)
        places[here] = place
        _mark(value, here, places, seen)


def text_of(content: Mapping[str, Any]) -> str:
    """Return the text of a document."""
    import yaml

    return yaml.safe_dump(dict(content), sort_keys=False)
