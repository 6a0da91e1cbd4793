"""How settings stand in a server's Python: which calls have them, and the text to write."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batchsim.servers.formats.document import Document
from batchsim.servers.formats.python_calls import Call, Callee, Program


@dataclass(frozen=True)
class PythonForm:
    """A server's calls: `batching` is the one that makes batches, in several spellings.

    `around` is another: a decorator of the class that the function is in, if `by_class`, else a call
    anywhere, once. `template` is the text to write: {batching} and {around} are the arguments of both,
    {+batching} and {+around} the same after a comma. `renamed` are settings by their old names. `also` tells
    calls of the users' own functions, and `settle` is called last, with the document.
    """

    batching: tuple[Callee, ...]
    template: str
    around: Callee | None = None
    by_class: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    also: Callable[[Call], bool] = lambda call: False
    settle: Callable[[Document], None] = lambda document: None

    def read(self, document: Document, text: str, which: str | None) -> None:
        """Fill a document with the calls of a text; `which` names the function, worker or line."""
        program = Program(text)
        call = self._one([call for call in program.calls if self._callee(call)], which)
        program.put(document, call, self._callee(call) or self.batching[0])
        if self.around is not None and (around := self._around(program, call)) is not None:
            program.put(document, around, self.around)
        for name, now in self.renamed.items():
            if name in document.unknown:
                document.unknown[name] = now
        self.settle(document)

    def _callee(self, call: Call) -> Callee | None:
        own = self.batching[0] if self.also(call) else None
        return next((callee for callee in self.batching if call.is_of(callee)), own)

    def _one(self, calls: list[Call], which: str | None) -> Call:
        title = self.batching[0].title
        listed = ", ".join(f"{call.label} (line {call.place[0]})" for call in calls)
        if not calls:
            raise ValueError(f"the text must have a call of {title}, got none")
        if which is not None:
            fits = [call for call in calls if which in (call.label, str(call.place[0]))]
            if len(fits) != 1:
                rule = f"which must name one call of {title}, or its line"
                raise ValueError(f"{rule}, of {listed}; got {which!r}")
            return fits[0]
        if len(calls) > 1:  # one of several stages may be the one that makes batches
            calls = [call for call in calls if {"max_batch_size", "batch_size"} & {*call.keywords}] or calls
        if len(calls) > 1:
            raise ValueError(f"a call of {title} must be there once, or which must name it, got {listed}")
        return calls[0]

    def _around(self, program: Program, call: Call) -> Call | None:
        found = [each for each in program.calls if self.around is not None and each.is_of(self.around)]
        if self.by_class and call.within is not None:
            return next((each for each in found if each.node in call.within.decorator_list), None)
        if len(found) > 1 and not self.by_class:
            lines = ", ".join(str(each.place[0]) for each in found)
            raise ValueError(f"{found[0].callee} must be called once, got it in lines {lines}")
        return found[0] if len(found) == 1 else None

    def write(self, settings: dict[str, Any], unused: Mapping[str, Any]) -> str:
        """Return the text with the settings as arguments."""
        text = self.template
        for name, callees in {"batching": self.batching[:1], "around": (self.around,)}.items():
            given = "".join(callee.arguments(settings, unused) for callee in callees if callee is not None)
            text = text.replace(f"{{+{name}}}", given and f", {given}").replace(f"{{{name}}}", given)
        return text
