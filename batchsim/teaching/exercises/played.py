"""Exercises whose answer is a game that the learner played: it is simulated again, also for a grade."""

from collections.abc import Sequence
from typing import Any

from batchsim.teaching.exercises.exercise import Exercise, Verdict
from batchsim.teaching.game import BeTheBatcher, Game, seed_of
from batchsim.teaching.progress_store import load

FEW = 4  # sends: hardly any


class Played(Exercise):
    """A game of the batcher, whose mean latency must be below that of a wait of 10 ms."""

    asks = "a game, as be_the_batcher returns it"
    missing = "play the game to its end, then run this cell again."

    def is_open(self, answer: Any) -> bool:
        return answer is ... or (isinstance(answer, BeTheBatcher) and not answer.answered)

    def judge(self, answer: Any) -> Verdict:
        if not isinstance(answer, BeTheBatcher):
            raise TypeError(
                f"the answer must be the game itself, got an object of type {type(answer).__name__}"
            )
        if answer.seed != seed_of(self.name, load().key):
            return Verdict(False, "this game has the requests of another one. Run its cell again, and play.")
        return self.verdict(answer.game, answer.sends_s)

    def verdict(self, game: Game, sends_s: Sequence[float]) -> Verdict:
        """Simulate the sends, and compare them with the rule."""
        you, rule, *_ = game.rows(sends_s)
        if you["mean_ms"] < rule["mean_ms"]:
            less = you["forming_ms"] < rule["forming_ms"]
            why = (
                "your requests waited less for company" if less else "your requests waited less in the queue"
            )
            means = f"your mean is {you['mean_ms']:.1f} ms, the rule's {rule['mean_ms']:.1f} ms"
            return Verdict(True, f"{means}: {why}.")
        means = f"your mean is {you['mean_ms']:.1f} ms, and {rule['mean_ms']:.1f} ms with a wait of 10 ms."
        if len(sends_s) <= FEW:
            return Verdict(False, f"{means} You hardly sent: the others waited until the end.")
        if you["forming_ms"] > 2 * rule["forming_ms"]:
            idle = f"{you['forming_ms']:.1f} ms a request waits while the server is idle"
            return Verdict(False, f"{means} For {idle}. Send before many wait.")
        return Verdict(False, f"{means} Press Send while the server computes: the next batch leaves at once.")

    def evidence(self, answer: Any) -> list[float]:
        return list(answer.sends_s)

    def holds(self, evidence: Sequence[float], key: str) -> bool:
        try:
            return self.verdict(Game(seed_of(self.name, key)), evidence).right
        except (TypeError, ValueError):  # edited by hand
            return False
