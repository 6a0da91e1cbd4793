"""Sweeps into a folder, killed at any moment, and folders that were damaged in between."""

import contextlib
import os
import random
import shutil
import signal
import time
from pathlib import Path

from runs import processes

import batchsim as bs

# A killed process leaves its semaphores to the tracker, which removes them and need not say so.
os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker:UserWarning"
SCENARIO = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25))
OVER = {"max_batch_size": list(range(1, 21)), "max_wait_ms": [0, 1, 2, 5, 10, 20, 40]}
REQUESTS = 20_000


def sweep(out: str | None, pipe=None) -> None:
    """Sweep into a folder, in a process of its own."""
    import warnings

    warnings.simplefilter("ignore")
    try:
        table = bs.sweep(SCENARIO, OVER, REQUESTS, out=out, progress=False, workers=2)
        if pipe is not None:
            pipe.send(table)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        if pipe is not None:
            pipe.send(error)


def whole(out: str | None):
    """Sweep to the end; return the table, or raise what was raised."""
    ours, theirs = processes.Pipe()
    process = processes.Process(target=sweep, args=(out, theirs))
    process.start()
    if not ours.poll(120):
        process.kill()
        raise TimeoutError("the sweep does not end")
    answer = ours.recv()
    process.join()
    if isinstance(answer, Exception):
        raise answer
    return answer


def undisturbed(cache=[]):  # noqa: B006 - it is computed once
    if not cache:
        cache.append(whole(None))
    return cache[0]


def points(folder: Path) -> set[str]:
    """Return the points on disk, as any reader of Parquet sees them."""
    import pyarrow.parquet

    keys: set[str] = set()
    for path in (folder / "points").glob("[!.]*.parquet"):
        try:
            keys |= set(pyarrow.parquet.read_table(path, columns=["point"])["point"].to_pylist())
        except FileNotFoundError:
            if not path.is_symlink():  # merged meanwhile: its points are in another file
                return points(folder)
    return keys


def attack_sweep(rng: random.Random, folder: Path) -> str:
    """No finished point is lost to a signal; a resumed sweep ends with the numbers of an undisturbed one."""
    out, injured = folder / "sweep", False
    expected = undisturbed()
    shutil.rmtree(out, ignore_errors=True)
    kept: set[str] = set()
    for _ in range(rng.randint(1, 4)):
        several = [processes.Process(target=sweep, args=(str(out),)) for _ in range(rng.choice([1, 1, 2]))]
        for process in several:
            process.start()
        time.sleep(rng.uniform(0, 1.5))
        for process in several:
            with_what = rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
            with contextlib.suppress(ProcessLookupError):  # it is done
                os.kill(process.pid, with_what)
        for process in several:
            process.join(60)
            assert not process.is_alive(), f"a sweep outlives {with_what!r}"
        now = points(out)
        assert kept <= now, f"{len(kept - now)} finished points are gone"
        kept = now
        if rng.random() < 0.4:
            injured = _injure(rng, out) or injured
            kept = set() if injured else kept
    table = whole(str(out))
    assert table.equals(expected), "other numbers than an undisturbed sweep's"
    assert len(points(out)) == len(expected)
    return "resumed, its folder injured" if injured else "resumed"


def _injure(rng: random.Random, out: Path) -> bool:
    """Damage the folder in a way that a sweep must survive; return whether points may be lost."""
    there = sorted((out / "points").glob("*.parquet")) if out.is_dir() else []
    if not out.is_dir() or not (out / "points").is_dir():
        return False
    kind = rng.randrange(4)
    if kind == 0:
        (out / "points" / f"{rng.getrandbits(32):08x}.parquet").symlink_to(out / "nowhere")
    elif kind == 1:
        (out / "points" / f".{rng.getrandbits(64):016x}.tmp").write_bytes(b"half of a file")
    elif there and kind == 2:
        rng.choice(there).unlink()
        return True
    elif there:
        path = rng.choice(there)
        content = bytearray(path.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(content[: rng.choice([len(content), rng.randrange(len(content))])]))
        return True
    return False
