"""Passes over the steps of a run of token generation that are folded: see `engines.folded_log`."""

from batchsim._clock import PER_S, WHOLE
from batchsim.engines.compiled.jit import compiled
from batchsim.engines.compiled.sums import bin_of

# mypy: disable-error-code="no-untyped-def"


@compiled
def note_ended(ending, order, arrival_s, until_s, ended, before, last):
    """Write how much had ended by each arrival, and in all; return how many rows ended by `until_s`.

    `ending` has times and amounts, shape (1 + amounts, rows), which `order` sorts by time. No arrival is
    later than `until_s`. `ended` is how much had ended before these rows; it becomes that by `until_s`.
    """
    row, amounts = 0, ended.size
    for request in range(arrival_s.size + 1):
        by_s = arrival_s[request] if request < arrival_s.size else until_s
        while row < order.size and ending[0, order[row]] <= by_s:
            for amount in range(amounts):
                ended[amount] += ending[1 + amount, order[row]]
            row += 1
        for amount in range(amounts if request < arrival_s.size else 0):
            before[amount, request] = ended[amount]
    for amount in range(amounts):
        last[amount] = ended[amount]
        for rest in range(row, order.size):
            last[amount] += ending[1 + amount, order[rest]]
    return row


@compiled
def note_blocks(at_s, gap_s, counts, order, block, found):
    """Write the gaps of each block of rows in `order`: their last time, bins and counts; return the rows."""
    used = 0
    for begin in range(0, order.size, block):
        end, first = min(begin + block, order.size), used
        for place in range(begin, end):
            row = order[place]
            own = float(bin_of(gap_s[row] * PER_S + WHOLE - WHOLE))
            low, high = first, used  # the bins of a block are in order
            while low < high:
                middle = (low + high) // 2
                if found[1, middle] < own:
                    low = middle + 1
                else:
                    high = middle
            if low == used or found[1, low] != own:
                for later in range(used, low, -1):
                    found[1, later], found[2, later] = found[1, later - 1], found[2, later - 1]
                found[1, low], found[2, low] = own, 0.0
                used += 1
            found[2, low] += counts[row]
        for each in range(first, used):
            found[0, each] = at_s[order[end - 1]]
    return used
