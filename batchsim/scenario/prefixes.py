"""Prompts that begin alike: groups of requests with a common prefix, and the hash ids of a trace.

A prefix is a path through a tree of pieces, all of the same length. Two requests share the pieces that their
paths have in common from the beginning on.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchsim import _check
from batchsim._compat import kept
from batchsim._format import brief
from batchsim.scenario.lengths import LONGEST

MOST_GROUPS = 10_000_000
PIECES = 512, 16, *(2**power for power in range(17))  # Mooncake's tokens an id, Qwen-Bailian's, and others
FEW = 0.01  # of the prompts, whose hash ids may be too few or too many


class Prefixes:
    """Common prefixes of prompts, as `PrefixGroups` and `HashIds`."""

    piece_tokens: int

    @property
    def paths(self) -> tuple[np.ndarray, np.ndarray]:
        """The pieces of path p are `pieces[first[p] : first[p + 1]]`: `first` and `pieces`."""
        raise NotImplementedError

    @property
    def max_requests(self) -> int | None:
        """The number of requests with a path, None if unlimited."""
        return None

    def draws(self, seed: np.random.SeedSequence) -> Callable[[int], np.ndarray]:
        """Return a function that draws the paths of the next requests of a run."""
        raise NotImplementedError


@dataclass(frozen=True)
class PrefixGroups(Prefixes):
    """Each request belongs to one of `groups`, whose prompts begin with the same `prefix_tokens` tokens.

    A group's system prompt is an example. Group k has the weight k ** -popularity: 0 means that all are
    alike, 1 is Zipf's law. A shorter prompt is a beginning of the prefix.

    >>> PrefixGroups(groups=3, prefix_tokens=1000, popularity=1).draws(np.random.SeedSequence(1))(8)
    array([0, 2, 0, 2, 0, 0, 2, 0])
    """

    groups: int
    prefix_tokens: int
    popularity: float = 0.0

    def __post_init__(self) -> None:
        _check.fix_whole(self, "groups", at_most=MOST_GROUPS)
        _check.fix_whole(self, "prefix_tokens", at_most=LONGEST)
        _check.fix_real(self, "popularity", at_least=0, at_most=100)

    @property
    def piece_tokens(self) -> int:  # type: ignore[override]
        return self.prefix_tokens

    @property
    def paths(self) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(self.groups + 1), np.arange(self.groups)

    @property
    def shares(self) -> np.ndarray:
        """The shares of the groups, cumulative."""
        shares = np.cumsum(np.arange(1.0, self.groups + 1) ** -self.popularity)
        return shares / shares[-1]

    def draws(self, seed: np.random.SeedSequence) -> Callable[[int], np.ndarray]:
        generator, shares = np.random.default_rng(seed), self.shares

        def draw(requests: int) -> np.ndarray:
            return np.searchsorted(shares, generator.random(requests), side="right").astype(np.int64)

        return draw


@dataclass(frozen=True, eq=False, repr=False)
class HashIds(Prefixes):
    """The hash ids of a trace: request i begins with the pieces `ids[i]`, each of `piece_tokens` tokens.

    Two requests share the pieces before the first id that differs, as in Mooncake's traces, whose pieces have
    512 tokens. The last piece may be longer than the rest of its prompt.

    >>> HashIds([[7, 8, 9], [7, 8], [], [7, 9]]).paths
    (array([0, 3, 5, 5, 7]), array([0, 1, 2, 0, 1, 0, 3]))
    """

    ids: Sequence[Sequence[int]]
    piece_tokens: int = 512

    def __post_init__(self) -> None:
        _check.fix_whole(self, "piece_tokens", at_most=LONGEST)
        if not _check.listed(self.ids) or not len(self.ids):
            raise ValueError(f"ids must be a list of lists of whole numbers, got {brief(self.ids)}")
        rows = []
        for i, row in enumerate(self.ids):
            whole = _check.listed(row) and all(
                isinstance(each, (int, np.integer)) and not isinstance(each, bool) for each in row
            )
            if not whole:
                raise ValueError(f"ids must be a list of whole numbers each, got {brief(row)} at index {i}")
            rows.append(tuple(map(int, row)))
        object.__setattr__(self, "ids", tuple(rows))

    @kept
    def paths(self) -> tuple[np.ndarray, np.ndarray]:
        number: dict[tuple[int, int], int] = {}  # of a piece, by the piece before it and its id
        pieces = []
        for row in self.ids:
            piece = -1
            for each in row:
                piece = number.setdefault((piece, each), len(number))
                pieces.append(piece)
        first = np.cumsum([0, *map(len, self.ids)])
        return first, np.array(pieces, np.int64)

    @property
    def max_requests(self) -> int:
        return len(self.ids)

    def draws(self, seed: np.random.SeedSequence) -> Callable[[int], np.ndarray]:
        passed = itertools.count()

        def draw(requests: int) -> np.ndarray:
            paths = np.fromiter(itertools.islice(passed, requests), np.int64, requests)
            if requests and paths[-1] >= len(self.ids):
                few = f"{paths[-1] + 1:,} requests, got {len(self.ids):,}"
                raise ValueError(f"there must be hash ids for each of {few}")
            return paths

        return draw

    def __eq__(self, other: Any) -> bool:
        alike = isinstance(other, HashIds) and self.piece_tokens == other.piece_tokens
        return alike and self.ids == other.ids

    def __hash__(self) -> int:
        return hash((self.ids, self.piece_tokens))

    def __repr__(self) -> str:
        return f"HashIds({len(self.ids):,} requests, piece_tokens={self.piece_tokens})"


PREFIXES = (PrefixGroups, HashIds)


@dataclass(frozen=True, eq=False)
class PrefixBlocks:
    """The blocks of prefixes that requests share, by the block size of a server's memory.

    Block b of path p has the contents `pieces[first[p] + b // per_piece] * per_piece + b % per_piece`.
    Without prefixes there are none.
    """

    first: np.ndarray
    pieces: np.ndarray
    per_piece: int
    count: int  # of different contents

    @classmethod
    def of(cls, prefixes: Prefixes | None, block_size: int) -> "PrefixBlocks":
        if prefixes is None or prefixes.piece_tokens < block_size:
            return cls(np.zeros(2, np.int64), np.zeros(0, np.int64), 1, 0)
        first, pieces = prefixes.paths
        per_piece = prefixes.piece_tokens // block_size
        return cls(first, pieces, per_piece, (int(pieces.max(initial=-1)) + 1) * per_piece)

    def counts(self, paths: np.ndarray, prompts: np.ndarray, block_size: int) -> np.ndarray:
        """Return how many whole blocks of each request's prompt have contents that others may share."""
        if not self.count:
            return np.zeros(paths.size, np.int64)
        return np.minimum((self.first[paths + 1] - self.first[paths]) * self.per_piece, prompts // block_size)

    def contents(self, path: int, block: int) -> int:
        """Return the contents of a block of a path."""
        piece = self.pieces[self.first[path] + block // self.per_piece]
        return int(piece * self.per_piece + block % self.per_piece)


def hash_ids_of(prompts: np.ndarray, ids: Sequence[Sequence[int]], piece: int | None) -> HashIds:
    """Return the hash ids of prompts; by default an id is for as many tokens as fit nearly all of them.

    Where they do not fit, ValueError, or a warning for a few and for a `piece` that is given.

    >>> hash_ids_of(np.array([500, 33]), [range(32), range(3)], None).piece_tokens
    16
    """
    made = HashIds(ids, PIECES[0] if piece is None else piece)
    counts = np.array([len(row) for row in made.ids])
    pieces = PIECES if piece is None else (made.piece_tokens,)
    unlike = {each: np.flatnonzero(counts != -(-prompts // each)) for each in pieces}
    best = min(unlike, key=lambda each: unlike[each].size)
    if (wrong := unlike[best]).size:
        rule = f"hash ids must be one for each {best} tokens of a prompt"
        got = f"{counts[wrong[0]]} for {prompts[wrong[0]]:,} tokens at index {wrong[0]}"
        got += f", and {wrong.size:,} of {counts.size:,} prompts so"
        if piece is None and wrong.size > FEW * counts.size:
            raise ValueError(f"{rule}, or piece be given, got {got}")
        _check.warn(f"{rule}, got {got}")
    return made if best == made.piece_tokens else HashIds(ids, best)
