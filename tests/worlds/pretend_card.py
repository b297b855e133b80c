"""A CUDA device that is none: tensors that say they lie there, compute on the CPU, and refuse to meet others.

It finds what a machine without a card cannot: a tensor left on the CPU, `numpy()` of one that is on the card. It does
not tell how a card rounds, or which kernels it has.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

CARD = torch.device("cuda:0")
_CPU_INDICES = {"__getitem__", "__setitem__", "index_put_", "index_put"}
"""Functions that take indices from the CPU on a real card too."""
_COPIES = {"copy_", "_foreach_copy_", "set_data", "__set__", "promote_types", "_has_compatible_shallow_copy_type"}
"""Functions that copy between devices, or only compare types."""


class OnCard(torch.Tensor):
    """A tensor of the pretended card."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CARD

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        return False

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnCard":
        copied = self.detach().clone().requires_grad_(self.requires_grad)
        memo[id(self)] = made = torch.nn.Parameter(copied, self.requires_grad) if hasattr(self, "_is_param") else copied
        return made


def _plain(value: Any) -> Any:
    return value.as_subclass(torch.Tensor) if isinstance(value, torch.Tensor) else value


def _placed(value: Any, on_card: bool) -> Any:
    """Tensors of a result, marked or not."""
    if isinstance(value, torch.Tensor):
        if on_card == isinstance(value, OnCard):
            return value
        return value.as_subclass(OnCard) if on_card else _plain(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_placed(each, on_card) for each in value))
    if isinstance(value, tuple | list):
        return type(value)(_placed(each, on_card) for each in value)
    return value


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def _is_card(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def _here(device: Any) -> Any:
    return "cpu" if _is_card(device) else device


class _Card(TorchFunctionMode):
    """Marks what is made on the card, and checks that its tensors meet no others."""

    lenient = 0
    """Backward passes under way, in which torch hands out tensors without the mark."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        there = list(_tensors([*args, *kwargs.values()]))
        if name in ("numpy", "__array__") and isinstance(args[0], OnCard):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
        if name == "register_hook":
            return func(args[0], self._strict(args[1], isinstance(args[0], OnCard)))
        if name == "backward" or func is torch.autograd.grad:
            with self._leniently():
                return _placed(func(*args, **kwargs), any(isinstance(one, OnCard) for one in there))
        asked, moved = self._asked(name, args, kwargs)
        on_card = any(isinstance(one, OnCard) for one in there) if asked is None else asked
        if asked is None and not self.lenient:
            self._check(name, there)
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*moved, **kwargs)
        if found is None or (name.endswith("_") and not name.endswith("__")):  # in place: the tensor itself
            return there[0] if isinstance(found, torch.Tensor) else found
        return _placed(found, on_card)

    def _asked(self, name: str, args: Any, kwargs: dict[str, Any]) -> tuple[bool | None, Any]:
        """Whether a call asks for a device, and its arguments with the CPU in place of the card."""
        if name == "cpu":
            return False, args
        if name == "cuda":
            raise AssertionError("tests: .cuda() takes no part in this")
        asked = None
        if kwargs.get("device") is not None and name != "_make_subclass":
            asked, kwargs["device"] = _is_card(kwargs["device"]), _here(kwargs["device"])
        if name == "to" and len(args) > 1:
            if isinstance(args[1], torch.Tensor):
                asked = isinstance(args[1], OnCard)
            elif isinstance(args[1], str | torch.device):
                asked, args = _is_card(args[1]), (args[0], _here(args[1]), *args[2:])
        if name in ("type_as", "view_as_like") and len(args) > 1:
            asked = isinstance(args[1], OnCard)
        return asked, args

    def _check(self, name: str, there: list[torch.Tensor]) -> None:
        if name in _COPIES or name in ("__get__", "requires_grad_", "as_subclass"):
            return
        if name in _CPU_INDICES and isinstance(there[0], OnCard):
            return
        marks = {isinstance(one, OnCard) for one in there if isinstance(one, OnCard) or one.dim()}
        if len(marks) > 1:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two, cuda:0 and cpu! ({name})"
            )

    def _strict(self, hook: Any, on_card: bool) -> Any:
        """A hook that is given what the card would give, and checked."""

        def run(gradient: torch.Tensor) -> Any:
            before, self.lenient = self.lenient, 0
            marked = _placed(gradient, on_card)
            try:
                with self:
                    return hook(marked)
            finally:
                self.lenient = before

        return run

    @contextmanager
    def _leniently(self) -> Iterator[None]:
        self.lenient += 1
        try:
            yield
        finally:
            self.lenient -= 1


class _Autocast(torch.autocast):
    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu" if device_type == "cuda" else device_type, *args, **kwargs)


@contextmanager
def pretended_card() -> Iterator[None]:
    """Let torch say that there is a CUDA device, in this process."""
    generator = torch.Generator
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
        patch.setattr(torch.cuda, "get_device_name", lambda _number=0: "a pretended card")
        patch.setattr(torch.cuda, "get_rng_state", lambda _device=0: torch.zeros(1))
        patch.setattr(torch.cuda, "set_rng_state", lambda *_state: None)
        patch.setattr(torch, "autocast", _Autocast)
        patch.setattr(torch, "Generator", lambda _device="cpu": generator())
        before = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            with _Card():
                yield
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(before)
