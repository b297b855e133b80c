"""Quantised weights in safetensors: which forms are read."""

from collections.abc import Mapping
from typing import Any

PLAIN = "mxfp4"
"""The format that transformers brings to plain weights by itself on every machine."""
BITSANDBYTES, GPTQ, AWQ = "bitsandbytes", "gptq", "awq"


def quantised(config: Mapping[str, Any]) -> str | None:
    """The format in which a configuration says that weights are held packed; None: they are plain, or not read."""
    found = config.get("quantization_config")
    return _method(found) if isinstance(found, Mapping) and _is_read(found) else None


def not_read(config: Mapping[str, Any]) -> str | None:
    """The name of a format of weights that is not read, with what is beyond; None: they are read."""
    found = config.get("quantization_config")
    if not isinstance(found, Mapping) or _method(found) == PLAIN or _is_read(found):
        return None
    beyond = [f"{key}={found[key]}" for key in ("bits", "version", "checkpoint_format", "format") if key in found]
    return " ".join([_method(found), *(beyond if _method(found) in (GPTQ, AWQ) else [])])


def _method(found: Mapping[str, Any]) -> str:
    """The name of a format, which early versions of bitsandbytes' folders lack."""
    old = BITSANDBYTES if {"load_in_4bit", "load_in_8bit"} & found.keys() else "unknown"
    return str(found.get("quant_method", old))


def _is_read(found: Mapping[str, Any]) -> bool:
    method = _method(found)
    if method == GPTQ:
        kind = found.get("checkpoint_format", found.get("format", "gptq"))
        return found.get("bits") in (4, 8) and kind in ("gptq", "gptq_v2")
    if method == AWQ:
        return found.get("bits") == 4 and str(found.get("version", "gemm")).lower() == "gemm"
    return method == BITSANDBYTES
