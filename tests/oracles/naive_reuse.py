"""Token generation with a prefix cache, naively: every block has a number, and keeps its contents."""

from oracles.naive_tokens import NaiveTokens


class NaiveReuse(NaiveTokens):
    """Free blocks in a queue; `contents` of a block: the request and which of its full blocks it is."""

    def memory(self, s):
        if not hasattr(s, "queue"):
            s.queue, s.contents, s.tables = list(range(s.free)), {}, {}
        return s

    def sweep(self, s):
        """Take back the blocks of those who were preempted since: the last of `running` first."""
        for r in reversed([r for r in self.waiting if id(r) in self.memory(s).tables]):
            s.queue.extend(reversed(s.tables.pop(id(r))))

    def serve(self, s, which):
        super().serve(s, which)
        self.sweep(s)

    def hits(self, s, r):
        """The blocks that still hold its beginning, in order."""
        self.memory(s)
        found = {which: block for block, (whose, which) in s.contents.items() if whose is r}
        beginning = []
        while len(beginning) in found:
            beginning.append(found[len(beginning)])
        return beginning

    def tokens(self, s, r):
        if r not in s.running:
            r.held = len(self.hits(s, r)) * self.rule["block_size"]
        return super().tokens(s, r)

    def give(self, s, r, n, blocks):
        self.sweep(s)
        if id(r) not in s.tables:
            s.tables[id(r)] = self.hits(s, r)
            for block in s.tables[id(r)]:
                s.queue.remove(block)
                s.free, r.blocks = s.free - 1, r.blocks + 1
        table = s.tables[id(r)]
        more = self.blocks(r.held + n) - len(table)
        for _ in range(more):
            block = s.queue.pop(0)
            s.contents.pop(block, None)
            table.append(block)
        super().give(s, r, n, more)
        for which in range(r.held // self.rule["block_size"]):
            s.contents[table[which]] = (r, which)
        assert len(s.queue) == s.free
        assert len(table) == r.blocks

    def leave(self, s, r, now):
        s.queue.extend(reversed(s.tables.pop(id(r))))
        super().leave(s, r, now)
