"""Of the workers that need a loop that is not on disk yet, one compiles it, and the others load it then."""

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from pathlib import Path

from batchsim.engines.compiled.jit import _Cache

PATIENCE_S = 120  # a worker whose loop does not compile has its turn until it ends


def take_turns() -> None:
    """From now on, who misses a loop waits for a turn, looks again, and keeps it until it has compiled."""
    load, save, turns = _Cache.load_overload, _Cache.save_overload, {}

    def load_overload(cache, signature, context):
        if (found := load(cache, signature, context)) is not None:
            return found
        name = f"{os.getuid()} {cache.cache_path} {cache._impl.filename_base} {signature}"
        name = hashlib.sha256(name.encode()).hexdigest()[:16]
        turns[cache] = Path(tempfile.gettempdir(), f"batchsim-compiles-{name}").open("w")  # noqa: SIM115
        late_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < late_s:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(turns[cache], fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.05)
        if (found := load(cache, signature, context)) is not None:
            turns.pop(cache).close()
        return found

    def save_overload(cache, signature, data):
        save(cache, signature, data)
        if cache in turns:
            turns.pop(cache).close()

    _Cache.load_overload, _Cache.save_overload = load_overload, save_overload
