"""Process CPU time in turns, and peak memory, of candidates."""

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import simsimd
from numpy._core._multiarray_umath import __cpu_features__
from threadpoolctl import threadpool_info, threadpool_limits

HOLDING = ("OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
"""Variables that hold instruction sets back, of OpenBLAS and of what torch uses."""


def interleave(candidates: dict[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Median process CPU seconds of each candidate.

    Each round runs every candidate once, so that a slow moment of the machine falls on all of them alike;
    one round before the first is not counted. BLAS and OpenMP have one thread: their idle threads spin for a while,
    on the account of whoever comes next. Give other libraries one thread before calling.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    with threadpool_limits(1):
        for round_number in range(rounds + 1):
            for name, run in candidates.items():
                start = time.process_time()
                run()
                if round_number:
                    seconds[name].append(time.process_time() - start)
    return {name: statistics.median(spent) for name, spent in seconds.items()}


def processor() -> str:
    """Instruction sets in use here: numpy's, those that BLAS libraries and simsimd chose, and what is held back."""
    sets = [
        name for name in ("AVX2", "AVX512F", "AVX512_SKX", "AVX512_ICL", "ASIMD", "SVE") if __cpu_features__.get(name)
    ]
    blas = {f"{one['internal_api']} {one['architecture']}" for one in threadpool_info() if "architecture" in one}
    kernels = [name for name, there in simsimd.get_capabilities().items() if there]
    held = [f"{name}={os.environ[name]}" for name in HOLDING if name in os.environ]
    parts = {"numpy": sets, "BLAS": sorted(blas), "simsimd": kernels, "held back": held}
    return "; ".join(f"{name}: {' '.join(found) or '-'}" for name, found in parts.items())


def verdict(ratio: float, ask: float) -> str:
    """A measured ratio beside the least one asked for."""
    return f"{ratio:.2f} (ask >= {ask:g}: {'met' if ratio >= ask else 'MISSED'})"


def is_fast_at_bfloat16(processor: str) -> bool:
    """Tell whether a processor multiplies bfloat16 matrices faster than float32 ones, by the text of ``/proc/cpuinfo``.

    That holds with AMX tiles, and for AVX-512 BF16 on AMD (twice the rate of float32); Intel's AVX-512 BF16
    without AMX was measured at about half the rate of float32.
    """
    fields = dict(line.split(":", 1) for line in processor.splitlines() if ":" in line)
    words = {key.strip(): value.split() for key, value in fields.items()}
    flags = words.get("flags", [])
    return "amx_bf16" in flags or ("avx512_bf16" in flags and words.get("vendor_id") == ["AuthenticAMD"])


def bfloat16_verdict(ratio: float, ask: float) -> str:
    """As :func:`verdict`; bfloat16 is asked to be fast only where the processor is fast at it."""
    if is_fast_at_bfloat16(Path("/proc/cpuinfo").read_text()):
        return verdict(ratio, ask)
    return f"{ratio:.2f} (ask >= {ask:g} holds for processors fast at bfloat16; this one is not)"


def extra_memory(prepare: Callable[[int], Callable[[], object]], size: int) -> float:
    """MiB by which memory grows while what ``prepare(size)`` returns runs, in its own process (Linux)."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_growth, prepare, size).result()


def _growth(prepare: Callable[[int], Callable[[], object]], size: int) -> float:
    run = prepare(size)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the preparation
    before = _peak()
    run()
    return (_peak() - before) / 1024


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])
