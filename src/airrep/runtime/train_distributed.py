"""The processes that train one encoder together."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, distributed

from airrep.errors import ConfigError
from airrep.runtime.precision import resolve_device

T = TypeVar("T")


def is_first_process() -> bool:
    """Whether this process is the first of ``torchrun``'s, or alone: the one that talks."""
    return os.environ.get("RANK", "0") == "0"


class Team:
    """The processes of ``torchrun``, or one process alone.

    Attributes:
        rank: number of this process, from 0; the first one writes.
        size: how many processes there are.
        device: where this one computes.
    """

    def __init__(self, rank: int = 0, size: int = 1, device: str = "cpu") -> None:
        self.rank, self.size, self.device = rank, size, device

    @property
    def first(self) -> bool:
        """Whether this process writes."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """This process's part of some items, every ``size``-th."""
        return list(items[self.rank :: self.size])

    def part(self, count: int) -> slice:
        """This process's neighbours among *count* items."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def sum_(self, *tensors: Tensor) -> None:
        """Put the sum over all processes into each tensor, in every process: the true sum, no mean."""
        if self.size > 1:
            for tensor in tensors:
                distributed.all_reduce(tensor)

    def any(self, flag: bool) -> bool:
        """Whether it is so in some process; the same answer in all."""
        total = torch.tensor(float(flag), device=self.device)
        self.sum_(total)
        return bool(total > 0)

    def wait(self) -> None:
        """Go on when all have come here."""
        if self.size > 1:
            distributed.barrier()


@contextmanager
def team_of(device: str = "auto") -> Iterator[Team]:
    """The team that this process was started in by ``torchrun``; by itself otherwise.

    Each process takes the CUDA device of its local rank when *device* is ``"auto"`` or ``"cuda"``. Messages go by
    NCCL between CUDA devices, else by gloo.

    Raises:
        ConfigError: the device is not in this machine.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    chosen = resolve_device(device)
    if size == 1 or "RANK" not in os.environ:
        yield Team(device=chosen)
        return
    if chosen == "cuda":
        chosen = _own_device()
    started = not distributed.is_initialized()
    if started:
        distributed.init_process_group("nccl" if chosen.startswith("cuda") else "gloo")
    try:
        yield Team(distributed.get_rank(), distributed.get_world_size(), chosen)
    finally:
        if started:
            distributed.destroy_process_group()


def _own_device() -> str:
    number = int(os.environ.get("LOCAL_RANK", "0"))
    if number >= torch.cuda.device_count():
        raise ConfigError(
            f"torchrun: process {number} has no CUDA device of its own; this machine has {torch.cuda.device_count()}. "
            "Start fewer processes, or use device=cpu."
        )
    torch.cuda.set_device(number)
    return f"cuda:{number}"
