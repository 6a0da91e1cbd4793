"""The process of a page's kernel: ipykernel, with a limit on its memory.

The limit counts what the process may write (RLIMIT_DATA), so that a run that is too large raises MemoryError
in its own page. Where there is no such limit, as on Windows and macOS, the kernel starts without.
"""

import os
import sys

MEGABYTES = "BATCHSIM_KERNEL_MB"  # an environment variable
USUAL_MB = 2_000  # a page that measured a JAX model and ran five million requests has 900


def limit_memory(megabytes: int) -> bool:
    """Limit what this process may allocate; return whether the system can."""
    if sys.platform != "linux":
        return False
    import resource

    # Arrow's own pool, which pandas fills with text, reserves a GiB at once, and that counts.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = megabytes * 10**6 if hard == resource.RLIM_INFINITY else min(megabytes * 10**6, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    return True


if __name__ == "__main__":
    limit_memory(int(os.environ.get(MEGABYTES) or USUAL_MB))
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()
