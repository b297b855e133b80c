"""Weights in the precision that they are stored in, brought to float32 one linear map at a time."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MethodType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from airrep.lm.files import stored_tensors
from airrep.shapes import Float, Int64

CHUNK = 2**24
"""Numbers of a weight that are float32 at a time, 64 MiB: an output layer over many tokens is read in parts."""
HALF = {"BF16": torch.bfloat16, "F16": torch.float16}
"""Types of 2 bytes, by their names in safetensors."""
_FLOATS = ("F64", "F32", "F8")  # beginnings of other names of types that are no integers


class Stored(Protocol):
    """A weight of ``(width_out, width_in)`` numbers, or a table of so many rows, as it is stored."""

    shape: tuple[int, int]
    """As the module has it: a Conv1D of transformers holds ``(width_in, width_out)``."""

    def rows(self, start: int, stop: int, kind: torch.dtype) -> Float[Tensor, "rows i"]:
        """Rows *start* to *stop* of what is stored, exactly the numbers that they stand for, in a type."""

    def take(self, rows: Int64[Tensor, " n"]) -> Float[Tensor, "n i"]:
        """Some rows of what is stored, as float32."""


class HalfWeight:
    """A weight in bfloat16 or float16, every number of which is one of float32 too."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.shape = (weight.shape[0], weight.shape[1])

    def rows(self, start: int, stop: int, kind: torch.dtype) -> Float[Tensor, "rows i"]:
        return self.weight[start:stop].to(kind)

    def take(self, rows: Int64[Tensor, " n"]) -> Float[Tensor, "n i"]:
        return self.weight[rows].float()


def stored_type(folder: Path, name: str) -> torch.dtype | None:
    """The type of 2 bytes that all weights of an LM's folder are stored in; None: another, or several."""
    kinds = {entry["dtype"] for entry in stored_tensors(folder, name).values()}
    floats = {kind for kind in kinds if kind in HALF or kind.startswith(_FLOATS)}
    return HALF[floats.pop()] if len(floats) == 1 and floats <= set(HALF) else None


def hold(model: Any) -> bool:
    """Keep linear maps and tables of 2 bytes a number as they are, and bring all else to float32, in place.

    False if the model has constants that are not known in float32; it is of no use then. Afterwards the model computes
    what it would if it had been loaded in float32: products in float32, or as autocast says. Its parameters have the
    names, shapes and type of those, and no numbers (NaN): code that reads a weight in some other way than by its module
    is found out by that.
    """
    if not _constants_held(model):
        return False
    made: dict[int, tuple[Stored, nn.Parameter]] = {}
    for module in model.modules():
        act = _forward(module, module is model.get_input_embeddings())
        weight = getattr(module, "weight", None)
        if act is not None and weight is not None and weight.dtype in HALF.values():
            if id(weight) not in made:
                made[id(weight)] = HalfWeight(weight.detach()), _hollow(weight)
            _put(module, *made[id(weight)], act)
    for parameter in model.parameters():
        if parameter.dtype in HALF.values():
            parameter.data = parameter.data.float()
    _tell(model.config)
    return True


def _constants_held(model: Any) -> bool:
    """Bring buffers to float32, those that a model computes for itself by making it again; False if that fails."""
    config = copy.deepcopy(model.config)
    _tell(config)
    try:
        with _without_weights():
            plain = dict(type(model)(config).named_modules())
    except Exception:  # of any model's code
        return False
    for name, module in model.named_modules():
        for key, buffer in module.named_buffers(recurse=False):
            if buffer.dtype in HALF.values():
                own = key in module._non_persistent_buffers_set
                fresh = getattr(plain.get(name), key, None) if own else buffer
                if fresh is None:
                    return False
                module._buffers[key] = fresh.to(buffer.device, torch.float32)
        if any(isinstance(value, Tensor) and value.dtype in HALF.values() for value in vars(module).values()):
            return False
    return True


def _tell(config: Any) -> None:
    """Say in a configuration, and in those of its parts, that weights are float32."""
    for each in (config, *(value for value in vars(config).values() if hasattr(value, "model_type"))):
        if getattr(each, "dtype", None) in HALF.values():
            each.dtype = torch.float32


def _put(module: nn.Module, stored: Stored, hollow: nn.Parameter, act: Callable[..., Tensor]) -> None:
    module.__dict__["held"] = stored
    module._parameters["weight"] = hollow
    module.__dict__["forward"] = MethodType(act, module)


def _hollow(weight: Tensor) -> nn.Parameter:
    """A parameter of some shape that has no numbers, and takes no memory."""
    nothing = torch.full((1,) * weight.dim(), torch.nan, device=weight.device)
    return nn.Parameter(nothing.expand(weight.shape), requires_grad=False)


def make_whole(model: nn.Module) -> None:
    """Bring all weights of a model that are held to float32, in place, so that they can be trained."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        stored = module.__dict__.pop("held", None)
        if stored is not None:
            del module.__dict__["forward"]
            if id(stored) not in made:
                made[id(stored)] = nn.Parameter(stored.rows(0, stored.shape[0], torch.float32))
            module._parameters["weight"] = made[id(stored)]


def is_held(model: nn.Module) -> bool:
    """True if some weight of a model is held as it is stored."""
    return any("held" in module.__dict__ for module in model.modules())


def _forward(module: nn.Module, first: bool) -> Callable[..., Tensor] | None:
    """What a module computes with a held weight; None where that is not known. The *first* table is looked up by ids.

    Other tables with a forward pass of their own may add to the ids that they are given.
    """
    from transformers.pytorch_utils import Conv1D

    if isinstance(module, nn.Embedding):
        own = type(module).forward is nn.Embedding.forward
        simple = module.max_norm is None and not module.sparse
        return _look_up if simple and (own or first) else None
    if type(module).forward is nn.Linear.forward:
        return _linear
    return _turned if type(module) is Conv1D else None


def _look_up(self: Any, ids: Int64[Tensor, "..."]) -> Float[Tensor, "... h"]:
    """Rows of a table; what the type of the module does with them beyond, such as scaling, is done in float32."""
    stored: Stored = self.held
    kinds, places = torch.unique(ids, return_inverse=True)
    shadow = copy.copy(self)  # the module with these rows alone; other threads may use the true one
    shadow.__dict__ = {**self.__dict__, "_parameters": {"weight": stored.take(kinds)}}
    found: Tensor = type(self).forward(shadow, places)
    return found


def _linear(self: Any, x: Float[Tensor, "... i"]) -> Float[Tensor, "... o"]:
    return _apply(x, self.held, self.bias, turned=False)


def _turned(self: Any, x: Float[Tensor, "... i"]) -> Float[Tensor, "... o"]:
    return _apply(x, self.held, self.bias, turned=True)


def _apply(x: Tensor, stored: Stored, bias: Tensor | None, turned: bool) -> Tensor:
    """x Wᵀ + b in the type of autocast where that is on, else in that of x."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        x = x.to(torch.get_autocast_dtype(kind))
    with torch.autocast(kind, enabled=False):
        found: Tensor = _HeldMap.apply(  # type: ignore[no-untyped-call]
            x, None if bias is None else bias.to(x.dtype), stored, turned
        )
    return found


class _HeldMap(torch.autograd.Function):
    """x Wᵀ + b; the backward pass brings W to float32 again, so that no copy of it is kept in between."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, stored: Stored, turned: bool) -> Tensor:
        ctx.stored, ctx.turned, ctx.biased = stored, turned, bias is not None
        parts = list(_parts(stored))
        if len(parts) == 1:
            weight = stored.rows(*parts[0], x.dtype)
            return functional.linear(x, weight.t() if turned else weight, bias)
        if turned:
            first, *others = ((x[..., a:b], stored.rows(a, b, x.dtype)) for a, b in parts)
            found = first[0] @ first[1]
            for inputs, weight in others:
                found += inputs @ weight
            return found if bias is None else found.add_(bias)
        found = x.new_empty(*x.shape[:-1], stored.shape[0])
        for start, stop in parts:
            part = None if bias is None else bias[start:stop]
            found[..., start:stop] = functional.linear(x, stored.rows(start, stop, x.dtype), part)
        return found

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:
        stored, turned = ctx.stored, ctx.turned
        found: Tensor | None = None
        if ctx.needs_input_grad[0]:
            parts = list(_parts(stored))
            for start, stop in parts:
                weight = stored.rows(start, stop, gradients.dtype)
                if turned:
                    own = gradients @ weight.t()
                    found = own if found is None else torch.cat([found, own], -1)
                else:
                    own = (gradients if len(parts) == 1 else gradients[..., start:stop]) @ weight
                    found = own if found is None else found.add_(own)
        bias = gradients.flatten(0, -2).sum(0) if ctx.biased and ctx.needs_input_grad[1] else None
        return found, bias, None, None


def _parts(stored: Stored) -> Iterator[tuple[int, int]]:
    """Starts and ends of the parts in which rows are read."""
    count, width = stored.shape
    step = max(1, CHUNK // max(1, width))
    return ((start, min(start + step, count)) for start in range(0, count, step))


@contextmanager
def _without_weights() -> Iterator[None]:
    """Make models whose parameters have no numbers and take no memory; their buffers are computed as always."""
    register = nn.Module.register_parameter

    def put(self: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        register(self, name, parameter)
        if parameter is not None:
            kind = type(parameter)
            self._parameters[name] = kind(parameter.data.to("meta"), requires_grad=parameter.requires_grad)

    owner: Any = nn.Module
    owner.register_parameter = put
    try:
        yield
    finally:
        owner.register_parameter = register
