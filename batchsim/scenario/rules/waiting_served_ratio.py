"""Text Generation Inference's batches: a few who wait do not stop those who run."""

from dataclasses import KW_ONLY, dataclass

from batchsim.scenario.rules import rule as seam
from batchsim.scenario.rules.continuous import MOST, Continuous


@dataclass(frozen=True, repr=False)
class WaitingServedRatio(Continuous):
    """Text Generation Inference's rule: prompts alone, once enough wait, with memory for their whole life.

    As `Continuous(first="prefill", reserve="life")`, but those who run stand still for no small company:

        JOIN(fewest, budget): from the head of those who wait, while fewer than max_num_seqs run:
          stop unless the blocks for prompt + limit - 1 are free; take them all
          stop if the prompt is above what is left of the budget (chunked: it gets what is left)
          nobody, if they are fewer than `fewest`

        if nobody runs: JOIN(0, max_num_batched_tokens), a step of their prompts
        else, a turn:
          JOIN(floor(waiting_served_ratio * running), max_num_batched_tokens), a step of their prompts alone;
          whatever their number if no one has joined for max_waiting_tokens turns
          then, whether or not anyone joined: a step of a token for each, those who joined included

    chunked: in a turn any company is enough, seats are not counted, JOIN's budget is what the next tokens of
    those who run leave of it, and its step is of both, so that a turn gives those who run two tokens. A
    budget is rounded up to whole blocks. The SimPy engine alone has it. Needs `tokens`, and a `StepTime`.

    >>> WaitingServedRatio(128, 4096, kv_blocks=300).waiting_served_ratio
    0.3
    """

    _: KW_ONLY
    first: str = "prefill"
    chunked: bool = False
    reserve: str = "life"
    waiting_served_ratio: float = seam.parameter(
        "Waiting / running", "So many must wait, for each that runs, to join", default=0.3, kind="real",
        at_least=0,
    )  # fmt: skip
    max_waiting_tokens: int = seam.parameter(
        "Waiting tokens", "After so many turns without, anyone may join", default=20, at_least=0, at_most=MOST
    )

    title = "Waiting / served ratio"
    compiled = False

    def check(self) -> None:
        super().check()
        self.check_fixed(first="prefill", reserve="life", watermark_blocks=0)
        self.check_fixed(long_prefill_token_threshold=0, prefix_reuse=False)
