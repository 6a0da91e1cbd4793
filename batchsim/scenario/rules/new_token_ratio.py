"""SGLang's batches: memory is promised for a share of what each request may still say."""

from dataclasses import KW_ONLY, dataclass

from batchsim import _check
from batchsim.scenario.rules import rule as seam
from batchsim.scenario.rules.continuous import MOST, Continuous

CLIP = 4096  # tokens: nobody is taken to say more
LOOK_AHEAD = 20  # tokens that each of those who stay shall be able to say after a retraction


@dataclass(frozen=True, repr=False)
class NewTokenRatio(Continuous):
    """SGLang's rule: prompts alone and cut, with memory for a share of the answers, which it learns.

    As `Continuous(first="prefill")`, but who joins is judged by what those who run may still say, and who
    goes back by what they have said. rest = min(limit - made, 4096):

        if a cut prompt goes on, or someone waits and the memory is not `full`: a step of PROMPTS
          total = free tokens - ratio * the sum of rest over those who run
          input = max_prefill_tokens; chunk = max_num_batched_tokens
          the cut prompt: as much as chunk and memory let it have
          from the head of those who wait, while fewer than max_num_seqs run:
            stop if total, input or chunk is used up; if total is, it is `full`
            stop if known + rest is not below total: then it is `full`; but nobody stops who is alone
            stop if known is above input, unless this is the first of the step
            it runs; add the row, cut to chunk; known (and rest, unless cut) is taken off the total
        else a step of a token for everyone (mixed: the two are one step, and the ratio stays)
          if memory is short: sort by `made`, the most first, then by prompt, the shortest first; the last of
            them goes back, to the TAIL of those who wait, and so on until the rest fits; one always stays;
            ratio = (made + 20 for each who stays) / (the sum of their limits + 1), at most 1
          else ratio -= (init_new_token_ratio - min_new_token_ratio) / decay_steps, down to the least

    Nobody is `full` any more once someone leaves; an idle engine begins again with init_new_token_ratio. The
    SimPy engine alone has it. Needs `tokens`, and a `StepTime`.

    >>> NewTokenRatio(max_num_seqs=64, kv_blocks=40_000).min_new_token_ratio
    0.098
    """

    _: KW_ONLY
    first: str = "prefill"
    block_size: int = seam.parameter("Block size", "Tokens in a block of memory", default=1, at_most=MOST)
    max_prefill_tokens: int = seam.parameter(
        "Prefill tokens", "A step begins no more prompts than these tokens", default=16_384, at_most=MOST
    )
    init_new_token_ratio: float = seam.parameter(
        "First ratio", "The share of the rest of an answer that is kept free at first", default=0.7,
        kind="real", at_least=0,
    )  # fmt: skip
    min_new_token_ratio: float = seam.parameter(
        "Least ratio", "The share that it falls to", default=0.098, kind="real", at_least=0
    )
    decay_steps: int = seam.parameter(
        "Decay", "Steps of tokens until the ratio is the least", default=600, at_most=MOST
    )
    mixed: bool = False

    title = "New token ratio"
    compiled = False

    def check(self) -> None:
        super().check()
        self.check_fixed(first="prefill", chunked=True, reserve="step", watermark_blocks=0)
        self.check_fixed(long_prefill_token_threshold=0, prefix_reuse=False)
        _check.instance("mixed", self.mixed, bool, "True or False")
        _check.fix_real(self, "init_new_token_ratio", at_least=0, at_most=1)
        _check.fix_real(self, "min_new_token_ratio", at_least=0, at_most=self.init_new_token_ratio)
