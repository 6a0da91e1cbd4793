"""Token generation with a prefix cache, naively: every block has a number, and keeps its contents."""

from oracles.naive_tokens import NaiveTokens


class NaiveReuse(NaiveTokens):
    """Free blocks in a queue. `contents` of a block: a number that prompts share, or a request and which of
    its blocks it is. `users` of a block: how many running requests have it in their table.
    """

    shared = ()  # by request: the contents of its first blocks

    def memory(self, s):
        if not hasattr(s, "queue"):
            s.queue, s.contents, s.tables, s.users = list(range(s.free)), {}, {}, [0] * s.free
        return s

    def key(self, r, which):
        of = self.shared[r.number] if self.shared else ()
        return of[which] if which < len(of) else (r, which)

    def block_with(self, s, key):
        return next((block for block, each in s.contents.items() if each == key), None)

    def hits(self, s, r):
        """The blocks that still hold its beginning, in order; one token at least is computed."""
        self.memory(s)
        beginning = []
        while (len(beginning) + 1) * self.rule.get("block_size", 16) < r.P + r.made:
            block = self.block_with(s, self.key(r, len(beginning)))
            if block is None:
                break
            beginning.append(block)
        return beginning

    def spared(self, s, r):
        return sum(s.users[block] > 0 for block in self.hits(s, r))

    def used(self, s):
        return (self.rule.get("kv_blocks") or 2**60) - s.free

    def tokens(self, s, r):
        if r not in s.running:
            r.held = len(self.hits(s, r)) * self.rule["block_size"]
        return super().tokens(s, r)

    def give(self, s, r, n, blocks):
        if id(r) not in s.tables:
            table = s.tables[id(r)] = self.hits(s, r)
            for block in table:
                if not s.users[block]:
                    s.queue.remove(block)
                s.users[block] += 1
            for block, key in list(s.contents.items()):
                if block not in table and isinstance(key, tuple) and key[0] is r:
                    del s.contents[block]
        table = s.tables[id(r)]
        before = r.held // self.rule["block_size"]
        for _ in range(self.blocks(r.held + n) - len(table)):
            block = s.queue.pop(0)
            s.contents.pop(block, None)
            s.users[block] = 1
            table.append(block)
        super().give(s, r, n, 0)
        for which in range(before, r.held // self.rule["block_size"]):
            key = self.key(r, which)
            other = self.block_with(s, key)
            if other is not None and s.users[other]:  # share the other, and give this one back
                s.users[table[which]] = 0
                s.queue.append(table[which])
                table[which] = other
                s.users[other] += 1
            else:
                s.contents.pop(other, None)
                s.contents[table[which]] = key
        self.count(s, r)

    def count(self, s, r):
        s.free, r.blocks = len(s.queue), len(s.tables.get(id(r), ()))

    def release(self, s, r, leaves):
        for block in reversed(s.tables.pop(id(r))):
            s.users[block] -= 1
            if not s.users[block]:
                s.queue.append(block)
            if leaves and isinstance(s.contents.get(block), tuple):
                del s.contents[block]
        self.count(s, r)

    def send_back(self, s, r):
        self.release(s, r, leaves=False)
        super().send_back(s, r)

    def leave(self, s, r, now):
        self.release(s, r, leaves=True)
        super().leave(s, r, now)
