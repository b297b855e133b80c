"""Choose the device and the precision that encoding runs in."""

from pathlib import Path
from typing import Literal, TypeAlias

import torch

from airrep.errors import ConfigError

Precision: TypeAlias = Literal["auto", "float32", "bfloat16"]
"""What may be asked for."""

ResolvedPrecision: TypeAlias = Literal["float32", "bfloat16"]
"""What ``"auto"`` turns into on a machine."""


def resolve_device(device: str) -> str:
    """Return the device to use; ``"auto"`` is the first CUDA device, or the CPU where there is none.

    Raises:
        ConfigError: unknown to torch, or not in this machine.
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise ConfigError(f"device {device}: is not known; expected auto, cpu, cuda or cuda:0.") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {device}: there is no CUDA device here. Use device='auto' or 'cpu'.")
    return device


def resolve_precision(precision: str, device: str) -> ResolvedPrecision:
    """Return the precision of the large matrix products.

    ``"auto"`` is bfloat16 where that is about twice as fast as float32: on CUDA devices that have it, and on
    processors that :func:`is_fast_at_bfloat16` names. It depends on the machine alone, never on a timing.

    Raises:
        ConfigError: none of the three known words.
    """
    if precision == "float32":
        return "float32"
    if precision == "bfloat16":
        return "bfloat16"
    if precision != "auto":
        raise ConfigError(f"precision {precision}: is not known; expected auto, float32 or bfloat16.")
    if torch.device(device).type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    return "bfloat16" if device == "cpu" and is_fast_at_bfloat16(_read_processor()) else "float32"


def is_fast_at_bfloat16(processor: str) -> bool:
    """Whether a processor multiplies bfloat16 matrices faster than float32 ones.

    That holds with AMX tiles, and for AVX-512 BF16 on AMD (twice the rate of float32); Intel's AVX-512 BF16
    without AMX was measured at about half the rate of float32.

    Args:
        processor: what Linux says in ``/proc/cpuinfo``.
    """
    fields = dict(line.split(":", 1) for line in processor.splitlines() if ":" in line)
    words = {key.strip(): value.split() for key, value in fields.items()}
    flags = words.get("flags", [])
    return "amx_bf16" in flags or ("avx512_bf16" in flags and words.get("vendor_id") == ["AuthenticAMD"])


def _read_processor() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""
