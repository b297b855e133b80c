"""Device, precision, float32 products and processes that work runs on."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from airrep.errors import ConfigError, has, need

if TYPE_CHECKING:
    from torch import Tensor

Precision: TypeAlias = Literal["auto", "float32", "bfloat16"]
"""Precision that may be asked for."""
ResolvedPrecision: TypeAlias = Literal["float32", "bfloat16"]
"""Precision of a machine, ``"auto"`` resolved."""
T = TypeVar("T")
ROW_STEP = 32
"""oneDNN is given multiples of so many rows: it makes a program for each number, some milliseconds and half a MiB."""
LEAST_COLUMNS = 8
"""Least columns of a result for which oneDNN is quicker."""


def resolve_device(device: str) -> str:
    """Return the device to use; ``"auto"`` is the first CUDA device, or the CPU where there is none, or no torch."""
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

    ``"auto"`` is float32 on every processor, so that no two of them rank otherwise than by rounding, and bfloat16 on
    CUDA devices that have it. bfloat16 moves a feature by up to 1 % of its length, and so what is selected.
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
    """Run matrix products in a resolved precision; weights stay as they are."""
    import torch

    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision == "bfloat16")


@contextmanager
def without_cudnn() -> Iterator[None]:
    """Compute attention by other kernels than cuDNN's, which torch prefers on Hopper cards in half precision.

    It makes a plan for each new shape, some 45 ms of the processor each way, and batches of texts hardly repeat one.
    """
    import torch

    asked = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(asked)


def linear(x: "Tensor", weight: "Tensor", bias: "Tensor") -> "Tensor":
    """x Wᵀ + b: ``(t, i)`` by ``(o, i)`` and ``(o,)`` to ``(t, o)``; quick where t is a multiple of ROW_STEP."""
    if len(x) % ROW_STEP == 0 and takes_onednn(x, weight):
        return _onednn(x, weight, bias)
    from torch.nn import functional

    return functional.linear(x, weight).add_(bias)  # a product that starts from the bias is slower


def multiply(x: "Tensor", weight: "Tensor", out: "Tensor") -> "Tensor":
    """Write x Wᵀ, ``(t, i)`` by ``(o, i)``, into *out* ``(t, o)``, and return that."""
    whole = len(x) // ROW_STEP * ROW_STEP if takes_onednn(x, weight) else 0
    if whole:
        out[:whole] = _onednn(x[:whole], weight, None)
    if whole < len(x):
        import torch

        torch.mm(x[whole:], weight.t(), out=out[whole:])
    return out


def takes_onednn(x: "Tensor", weight: "Tensor") -> bool:
    """True if oneDNN multiplies these matrices: float32 on an x86 CPU, no gradient wanted, and enough columns."""
    import torch

    plain = x.dtype == weight.dtype == torch.float32 and x.device.type == weight.device.type == "cpu"
    wanted = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    large = len(weight) >= LEAST_COLUMNS and x.shape[1] > 0
    return plain and large and has_onednn() and not wanted and not torch.is_autocast_enabled("cpu")


def has_onednn() -> bool:
    """True if torch's products of float32 are MKL's, and oneDNN can take their place.

    MKL leaves AVX-512 unused on processors that are not Intel's. There oneDNN takes half the time, and the same where
    both run AVX2 or both AVX-512. torch's operator for it is not public, and has no gradient.
    """
    import torch

    return torch.backends.mkl.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _onednn(x: "Tensor", weight: "Tensor", bias: "Tensor | None") -> "Tensor":
    import torch

    made: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return made


def is_first_process() -> bool:
    """True if this process is the first of ``torchrun``'s, or alone: the one that talks."""
    return os.environ.get("RANK", "0") == "0"


class Team:
    """The processes of ``torchrun``, or one process alone: its number from 0, how many there are, its device."""

    def __init__(self, rank: int = 0, size: int = 1, device: str = "cpu") -> None:
        self.rank, self.size, self.device = rank, size, device

    @property
    def first(self) -> bool:
        """True if this process writes."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """This process's part of some items, every ``size``-th."""
        return list(items[self.rank :: self.size])

    def part(self, count: int) -> slice:
        """This process's neighbours among *count* items."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def sum_(self, *tensors: "Tensor") -> None:
        """Put the sum over all processes into each tensor, in every process: the true sum, no mean."""
        if self.size > 1:
            from torch import distributed

            for tensor in tensors:
                distributed.all_reduce(tensor)

    def any(self, flag: bool) -> bool:
        """True if the flag is set in some process; all processes get this answer."""
        import torch

        total = torch.tensor(float(flag), device=self.device)
        self.sum_(total)
        return bool(total > 0)

    def wait(self) -> None:
        """Wait until all processes have come here."""
        if self.size > 1:
            from torch import distributed

            distributed.barrier()


@contextmanager
def team_of(device: str = "auto") -> Iterator[Team]:
    """The team that this process was started in by ``torchrun``; by itself otherwise.

    Each process takes the CUDA device of its local rank when *device* is ``"auto"`` or ``"cuda"``. Messages go by
    NCCL between CUDA devices, else by gloo.
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
    started = not distributed.is_initialized()  # what was started elsewhere is not ended here
    if started:
        own = torch.device(chosen)
        if own.type == "cuda":
            distributed.init_process_group("nccl", device_id=own)  # else the first barrier guesses, and warns
        else:
            distributed.init_process_group("gloo")
    try:
        yield Team(distributed.get_rank(), distributed.get_world_size(), chosen)
    finally:
        if started:
            distributed.destroy_process_group()
