"""The loop that notes when requests have their first token and leave."""

# mypy: disable-error-code="no-untyped-def"

from batchsim.engines.kernels_jit import compiled


@compiled
def note_times(requests, steps, used, before, until_s, token_s, finish_s, last_s):
    """Note the times that a call of the loop has settled; return when the last step so far ends.

    Of the steps, the first `used` rows are filled; those that were under way `before` end at `until_s`.
    """
    for kind in range(2):
        ends = requests.token_step if kind == 0 else requests.last_step
        times_s = token_s if kind == 0 else finish_s
        for request in range(ends.size):
            if ends[request] < 0 or times_s[request] >= 0:
                continue
            row = ends[request] - steps.first
            if row >= 0:
                times_s[request] = steps.finish_s[row]
                continue
            for server in range(before.size):
                if before[server] == ends[request]:
                    times_s[request] = until_s[server]
    for row in range(used):
        last_s = max(last_s, steps.finish_s[row])
    return last_s
