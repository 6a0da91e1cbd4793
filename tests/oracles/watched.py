"""An engine that is watched at every step."""

from batchsim.engines.reference.token_engine import Dispatcher


class Watched(Dispatcher):
    """An engine that notes who sits down, makes the first token of a sitting, and gets up."""

    def __init__(self, plan):
        super().__init__(plan)
        self.begun, self.sittings = {}, []

    def start(self, engine):
        before = {request.number for request in engine.running}
        started = super().start(engine)
        now_s, after = self.env.now, {request.number for request in engine.running}
        for number in before - after:
            begin_s, token_s = self.begun.pop(number)
            self.sittings.append((number, engine.number, begin_s, token_s or now_s, now_s, True))
        for number in after - before:
            self.begun[number] = (now_s, None)
        return started

    def release(self, server):
        engine, now_s = self.engines[server], self.env.now
        made = {row.request: row.request.generated for row in engine.rows}
        done = super().release(server)
        for request, count in made.items():
            begin_s, token_s = self.begun[request.number]
            if request.generated > count and token_s is None:
                self.begun[request.number] = (begin_s, now_s)
        for number in done:
            self.sittings.append((number, server, *self.begun.pop(number), now_s, False))
        return done
