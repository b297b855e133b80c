"""Device, precision, fast float32 products and torchrun's processes."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from airrep.errors import ConfigError, has, need

if TYPE_CHECKING:
    from torch import Tensor

Precision: TypeAlias = Literal["auto", "float32", "bfloat16"]
"""Precision that a user may choose."""
ResolvedPrecision: TypeAlias = Literal["float32", "bfloat16"]
"""Precision with ``"auto"`` resolved for a device."""
T = TypeVar("T")
ROW_STEP = 32
"""oneDNN gets multiples of this many rows, as each new number of rows costs it a kernel: milliseconds and half a MiB.
"""
LEAST_COLUMNS = 8
"""Least columns of a result for which oneDNN is faster."""


def resolve_device(device: str) -> str:
    """Return the device to use; ``"auto"`` is CUDA if there is a device, and the CPU otherwise or without torch."""
    if device == "cpu" or (device == "auto" and not has("torch")):
        return "cpu"
    need(f"device {device}", "lm", "torch")
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        asked = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(f"device {device}: is not known; expected auto, cpu, cuda or cuda:0.") from error
    if asked.type == "cpu":
        return "cpu"
    if asked.type != "cuda":
        raise ConfigError(f"device {device}: is not supported; expected auto, cpu, cuda or cuda:0. Use one of these.")
    if not torch.cuda.is_available():
        raise ConfigError(f"device {device}: there is no CUDA device here. Use device='auto' or 'cpu'.")
    if asked.index is not None and asked.index >= torch.cuda.device_count():
        raise ConfigError(
            f"device {device}: does not exist. This process sees {torch.cuda.device_count()} CUDA devices, numbered "
            "from 0, and a worker sees only its own. Use device='cuda'."
        )
    return device


def resolve_precision(precision: str, device: str) -> ResolvedPrecision:
    """Return the precision of the large matrix products.

    ``"auto"`` is bfloat16 on CUDA devices that support it. It is float32 on every CPU, so that rankings on two CPUs
    differ by rounding only. bfloat16 moves a feature by up to 1 % of its length, which can change a selection.
    """
    if precision == "float32":
        return "float32"
    if precision == "bfloat16":
        return "bfloat16"
    if precision != "auto":
        raise ConfigError(f"precision {precision}: is not known; expected auto, float32 or bfloat16.")
    if device == "cpu":
        return "float32"
    import torch

    on_card = torch.device(device).type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if on_card else "float32"


def autocast(precision: str, device: str) -> AbstractContextManager[object]:
    """Run matrix products in a resolved precision; weights keep theirs."""
    import torch

    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision == "bfloat16")


@contextmanager
def without_cudnn() -> Iterator[None]:
    """Compute attention without cuDNN's kernels, which torch prefers on Hopper cards in half precision.

    cuDNN plans each new shape, for about 45 ms of CPU time in each direction, and batches of texts rarely repeat one.
    """
    import torch

    asked = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(asked)


def linear(x: "Tensor", weight: "Tensor", bias: "Tensor") -> "Tensor":
    """Return x Wᵀ + b, ``(t, o)``, of ``(t, i)``, ``(o, i)`` and ``(o,)``; fast if t is a multiple of ROW_STEP."""
    if len(x) % ROW_STEP == 0 and takes_onednn(x, weight):
        return _onednn(x, weight, bias)
    from torch.nn import functional

    return functional.linear(x, weight).add_(bias)  # faster than functional.linear with the bias


def multiply(x: "Tensor", weight: "Tensor", out: "Tensor") -> "Tensor":
    """Write x Wᵀ, ``(t, i)`` by ``(o, i)``, into *out*, ``(t, o)``, and return *out*."""
    whole = len(x) // ROW_STEP * ROW_STEP if takes_onednn(x, weight) else 0
    if whole:
        out[:whole] = _onednn(x[:whole], weight, None)
    if whole < len(x):
        import torch

        torch.mm(x[whole:], weight.t(), out=out[whole:])
    return out


def takes_onednn(x: "Tensor", weight: "Tensor") -> bool:
    """Return True if oneDNN can multiply these: float32 on a CPU with MKL, no gradient or autocast, enough columns."""
    import torch

    plain = x.dtype == weight.dtype == torch.float32 and x.device.type == weight.device.type == "cpu"
    wanted = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    large = len(weight) >= LEAST_COLUMNS and x.shape[1] > 0
    return plain and large and has_onednn() and not wanted and not torch.is_autocast_enabled("cpu")


def has_onednn() -> bool:
    """Return True if torch uses MKL for float32 products and has an operator of oneDNN.

    MKL does not use AVX-512 on processors of other vendors than Intel; there oneDNN takes half the time. Otherwise
    both take equally long. torch's operator for oneDNN is not public and has no gradient.
    """
    import torch

    return torch.backends.mkl.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _onednn(x: "Tensor", weight: "Tensor", bias: "Tensor | None") -> "Tensor":
    import torch

    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def is_first_process() -> bool:
    """Return True if this process is the first of ``torchrun``'s or the only one; only this one prints."""
    return os.environ.get("RANK", "0") == "0"


class Team:
    """The processes of ``torchrun``, or one process alone: its ``rank`` from 0, their ``size``, its device."""

    def __init__(self, rank: int = 0, size: int = 1, device: str = "cpu") -> None:
        self.rank, self.size, self.device = rank, size, device

    @property
    def first(self) -> bool:
        """True for the first process, the only one that writes files."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """Return this process's part of the items: every ``size``-th."""
        return list(items[self.rank :: self.size])

    def part(self, count: int) -> slice:
        """Return this process's contiguous part of *count* items."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def sum_(self, *tensors: "Tensor") -> None:
        """Replace each tensor by its sum (not mean) over all processes, in every process."""
        if self.size > 1:
            from torch import distributed

            for tensor in tensors:
                distributed.all_reduce(tensor)

    def any(self, flag: bool) -> bool:
        """Return True in all processes if the flag is set in at least one of them."""
        import torch

        total = torch.tensor(float(flag), device=self.device)
        self.sum_(total)
        return bool(total > 0)

    def wait(self) -> None:
        """Wait until all processes have called this."""
        if self.size > 1:
            from torch import distributed

            distributed.barrier()


@contextmanager
def team_of(device: str = "auto") -> Iterator[Team]:
    """Yield the team that ``torchrun`` started this process in, or a team of one process.

    Each process takes the CUDA device of its local rank if *device* is ``"auto"`` or ``"cuda"``. The backend is NCCL
    for CUDA devices and gloo otherwise.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    chosen = resolve_device(device)
    if size == 1 or "RANK" not in os.environ:
        yield Team(device=chosen)
        return
    need("torchrun", "lm", "torch")
    import torch
    from torch import distributed

    if chosen == "cuda":
        number = int(os.environ.get("LOCAL_RANK", "0"))
        if number >= torch.cuda.device_count():
            raise ConfigError(
                f"torchrun: process {number} has no CUDA device of its own; this machine has "
                f"{torch.cuda.device_count()}. Start fewer processes, or use device=cpu."
            )
        torch.cuda.set_device(number)
        chosen = f"cuda:{number}"
    elif chosen.startswith("cuda"):
        raise ConfigError(f"torchrun: all {size} processes would share {chosen}. Use device='cuda' or 'cpu'.")
    started = not distributed.is_initialized()  # end the group only if it was started here
    if started:
        own = torch.device(chosen)
        if own.type == "cuda":
            distributed.init_process_group("nccl", device_id=own)  # without it the first barrier guesses and warns
        else:
            distributed.init_process_group("gloo")
    try:
        yield Team(distributed.get_rank(), distributed.get_world_size(), chosen)
    finally:
        if started:
            distributed.destroy_process_group()
