"""The machine in neutral words: cores, processor, memory, GPU."""

import os
import platform
import sys
from functools import cache
from pathlib import Path


@cache
def describe_machine() -> str:
    """Such as ``"2 cores of Intel Xeon Processor, 8 GiB memory"``, with the GPU where torch has found one; no names."""
    parts = [f"{_cores()} cores of {_processor()}"]
    memory = memory_bytes()
    if memory is not None:
        parts.append(f"{memory / 2**30:.0f} GiB memory")
    return ", ".join([*parts, *_gpu()])


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    """Its model as the system names it, without marks."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    found = named or platform.processor() or platform.machine()
    return found.replace("(R)", "").replace("(TM)", "").split(" @ ")[0].strip() or "an unknown processor"


def memory_bytes() -> int | None:
    """Memory of the machine; None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _gpu() -> list[str]:
    torch = sys.modules.get("torch")
    return [str(torch.cuda.get_device_name(0))] if torch is not None and torch.cuda.is_available() else []


def peak_memory() -> int | None:
    """Most memory that this process has held at once, in bytes; None where the system does not say.

    On Linux that of the program itself: what was held before it was started, by what started it, does not count.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return _largest_resident()


def _largest_resident() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024
