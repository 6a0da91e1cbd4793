"""Token generation: the lengths of requests, their prompts and their outputs, in whole tokens."""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from os import fspath
from typing import Self

import numpy as np

from batchsim import _check
from batchsim._files import File, json_lines, naming
from batchsim._format import brief, several
from batchsim.scenario.lengths import (
    LONGEST,
    Geometric,
    Lengths,
    Listed,
    Lognormal,
    longest_of,
    points,
    whole_lengths,
)
from batchsim.scenario.parameters import Described, parameter
from batchsim.scenario.prefixes import PREFIXES, Prefixes, hash_ids_of
from batchsim.scenario.trace_files import read_sizes


@dataclass(frozen=True)
class Tokens(Described):
    """The lengths of prompts and outputs, each a whole number or a distribution.

    `limit` is the most tokens that the client asked for, at least every output: rules that reserve memory in
    advance use it. By default it is the output itself. `prefixes` tells which prompts begin alike; it matters
    under `Continuous(prefix_reuse=True)`.

    >>> Tokens(prompt=Lognormal(800, 1.2, at_most=4096), output=Geometric(200)).output
    Geometric(mean=200)
    """

    prompt: int | Lengths
    output: int | Lengths
    limit: int | None = parameter(
        "Limit (tokens)", "Largest output a client may request; memory is reserved for it", at_most=LONGEST,
        when_none="the output's own length", default=None,
    )  # fmt: skip
    prefixes: Prefixes | None = None

    def check(self) -> None:
        for name in ("prompt", "output"):
            value = getattr(self, name)
            if isinstance(value, (list, tuple, np.ndarray)):
                object.__setattr__(self, name, Listed(value))  # type: ignore[arg-type]  # made an array
            elif not isinstance(value, Lengths):
                _check.fix_whole(self, name, at_most=LONGEST)
        if self.prefixes is not None:
            _check.instance("prefixes", self.prefixes, PREFIXES, "PrefixGroups or HashIds")

    @classmethod
    def sample(cls, pairs: Iterable[Sequence[int]], again: bool = False) -> Self:
        """Return measured lengths, (prompt, output) of each request in order of arrival.

        A run has at most this many requests, unless `again`: then the lengths start over after the last.

        >>> Tokens.sample([(100, 5), (20, 12)], again=True).prompt
        Listed(2 of mean 60, again)
        """
        if not _check.listed(pairs):
            raise TypeError(f"pairs must be a list of (prompt, output), got {brief(pairs)}")
        rows = list(pairs)
        if not rows:
            raise ValueError("pairs must not be empty, got []")
        for i, row in enumerate(rows):
            if not _check.listed(row) or len(row) != 2:
                raise ValueError(f"pairs must be (prompt, output) each, got {brief(row)} at index {i}")
        prompts, outputs = zip(*rows, strict=True)
        return cls(
            Listed(whole_lengths("prompts", prompts), again), Listed(whole_lengths("outputs", outputs), again)
        )

    @classmethod
    def from_csv(
        cls, path: File, prompt: str = "ContextTokens", output: str = "GeneratedTokens",
        again: bool = False,
    ) -> Self:  # fmt: skip
        """Read measured lengths from two columns of a CSV file with a header line; else as `sample`."""
        prompts, outputs = (Listed(each, again) for each in read_sizes(path, "csv", prompt, output))
        return cls(prompts, outputs)

    @classmethod
    def from_jsonl(
        cls, path: File, prompt: str = "input_length", output: str = "output_length",
        hash_ids: str = "hash_ids", piece: int | None = None,
    ) -> Self:  # fmt: skip
        """Read measured lengths and hash ids from JSON lines, by default those of Mooncake's traces.

        Each id stands for `piece` tokens of the prompt; by default for 512 (Mooncake), 16 (Qwen-Bailian) or
        another power of two, whichever fits the prompts and their ids. Else as `sample`.
        """
        pairs, ids = [], []
        for line, row in json_lines(path):
            for key in (prompt, output, hash_ids):
                if key not in row:
                    got = several([*row], 20) or "none"
                    rule = f"{fspath(path)}, line {line}: must have the key {brief(key)}"
                    raise ValueError(f"{rule}, got the keys {got}")
            pairs.append((row[prompt], row[output]))
            ids.append(row[hash_ids])
        with naming(fspath(path)):
            tokens = cls.sample(pairs)
            prefixes = hash_ids_of(tokens.prompt.values, ids, piece)  # type: ignore[union-attr]
            return replace(tokens, prefixes=prefixes)

    @property
    def max_requests(self) -> int | None:
        """The number of requests with lengths, None if unlimited."""
        parts = (self.prompt, self.output, self.prefixes)
        each = [part.max_requests for part in parts if isinstance(part, (Listed, Prefixes))]
        return min((count for count in each if count is not None), default=None)

    def check_longest(self, most: int) -> None:
        """Raise ValueError, with lengths that would do, unless every prompt with its output or limit fits."""
        prompt, output = self.prompt, self.limit or self.output
        if isinstance(prompt, Listed) and isinstance(output, Listed):
            longest = int((prompt.values[: output.values.size] + output.values[: prompt.values.size]).max())
        else:
            longest = longest_of(prompt) + longest_of(output)
        if longest <= most:
            return
        parts = {"prompt": prompt, "output": output}
        can_cut = {name: part for name, part in parts.items() if isinstance(part, (Lognormal, Geometric))}
        endless = {name: part for name, part in can_cut.items() if part.at_most is None}
        remedy = f"max_model_len={longest}"
        for tails in (endless, can_cut):
            room = most - sum(longest_of(part) for name, part in parts.items() if name not in tails)
            if tails and room >= len(tails):  # in proportion to the means
                means = [float(points(part).mean()) for part in tails.values()]
                cuts = [max(int(room * mean / sum(means)), 1) for mean in means]
                cuts[0] = room - sum(cuts[1:])
                each = (f"at_most={cut} of the {name}" for name, cut in zip(tails, cuts, strict=True))
                remedy = " and ".join(each)
                break
        rule = f"max_model_len, {most:,} tokens, must hold every prompt with its output"
        raise ValueError(f"{rule}, got up to {longest:,}: {remedy} would do")

    def draws(
        self, prompt_seed: np.random.SeedSequence, output_seed: np.random.SeedSequence
    ) -> Callable[[int], tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return a function that draws the prompts, outputs and limits of the next requests of a run."""
        drawn = 0
        of_prompts, of_outputs = (
            part.draws(seed)
            if isinstance(part, Lengths)
            else functools.partial(np.full, fill_value=part, dtype=np.int64)
            for part, seed in ((self.prompt, prompt_seed), (self.output, output_seed))
        )

        def draw(requests: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            nonlocal drawn
            first, drawn = drawn, drawn + requests
            prompts, outputs = of_prompts(requests), of_outputs(requests)
            if self.limit is None:
                return prompts, outputs, outputs.copy()
            for bad in np.flatnonzero(outputs > self.limit):
                got = f"limit {self.limit:,} and {outputs[bad]:,} tokens of request {first + bad:,}"
                raise ValueError(f"limit must be at least every output, got {got}")
            return prompts, outputs, np.full(requests, self.limit, np.int64)

        return draw


def a_request(tokens: Tokens) -> float:
    """Return the mean number of tokens that engines compute for a request."""
    return float(points(tokens.prompt).mean() + points(tokens.output).mean()) - 1
