"""Weights kept as stored, and converted to float32 one linear map at a time."""

import copy
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from airrep.errors import ConfigError
from airrep.lm.files import stored_tensors
from airrep.runtime.metering import used_memory
from airrep.shapes import Float, Int64

CHUNK = 2**24
"""Most numbers of a weight that are in float32 at a time, 64 MiB: a large output layer is read in parts."""
_AT_A_TIME = 2**18
"""Numbers of a part that are converted at a time, 1 MiB."""
HALF = {"BF16": torch.bfloat16, "F16": torch.float16}
"""Types of 2 bytes, by their names in safetensors."""
_FLOATS = ("F64", "F32", "F8")  # prefixes of the names of other floating-point types


class Stored(Protocol):
    """The weight of a linear map or an embedding table, as it is stored."""

    shape: tuple[int, int]
    """``(width_out, width_in)``, or ``(rows, width)`` of a table; a Conv1D of transformers has ``(in, out)``."""
    kind: torch.dtype | None
    """Type of the numbers; None if they are computed from stored codes."""
    device: torch.device
    """Device of the stored numbers."""

    def rows(self, which: slice | Int64[Tensor, " n"]) -> Float[Tensor, "n i"]:
        """Return some rows of the weight, without rounding, in any type."""


class HalfWeight:
    """A weight in bfloat16 or float16; float32 holds each of its numbers exactly."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight
        self.shape = (weight.shape[0], weight.shape[1])
        self.kind: torch.dtype | None = weight.dtype
        self.device = weight.device

    def rows(self, which: slice | Int64[Tensor, " n"]) -> Float[Tensor, "n i"]:
        return self._weight[which]


def stored_type(folder: Path, name: str) -> torch.dtype | None:
    """Return the 2-byte type that all floating-point weights of a folder are stored in; None if there is another."""
    kinds = {entry["dtype"] for entry in stored_tensors(folder, name).values()}
    floats = {kind for kind in kinds if kind in HALF or kind.startswith(_FLOATS)}
    return HALF[floats.pop()] if len(floats) == 1 and floats <= set(HALF) else None


def hold(model: Any) -> bool:
    """Keep linear maps and embedding tables in 2-byte types as they are, and convert all else to float32, in place.

    Return False if a constant of the model cannot be made in float32; the model is useless then. Otherwise the model
    computes what it would if it had been loaded in float32: products in float32, or as autocast says. The parameters
    of kept weights have their names and shapes, type float32, and only NaN, so that code that reads a weight past its
    module gives NaN.
    """
    if not _constants_held(model):
        return False
    put(model, lambda weight: HalfWeight(weight.detach()) if weight.dtype in HALF.values() else None)
    for parameter in model.parameters():
        if parameter.dtype in HALF.values():
            parameter.data = parameter.data.float()
    _tell(model.config)
    return True


def _constants_held(model: Any) -> bool:
    """Convert buffers to float32, and compute those anew that files do not store; return False if that fails."""
    config = copy.deepcopy(model.config)
    _tell(config)
    try:
        with without_weights():
            plain = dict(type(model)(config).named_modules())
    except Exception:  # the code of any model may run here
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
    """Set the type of weights to float32 in a configuration and in the configurations of its parts."""
    for each in (config, *(value for value in vars(config).values() if hasattr(value, "model_type"))):
        if getattr(each, "dtype", None) in HALF.values():
            each.dtype = torch.float32


def put(model: Any, stored: Callable[[nn.Parameter], Stored | None]) -> None:
    """Let modules of known types compute with the weights that *stored* returns, in place; None keeps a parameter.

    The replaced parameters become hollow: they keep their shape, are NaN, and take no memory.
    """
    made: dict[int, tuple[nn.Parameter, Stored, nn.Parameter]] = {}  # the first keeps its id from being reused
    for module in model.modules():
        act = _forward(module, module is model.get_input_embeddings())
        weight = getattr(module, "weight", None)
        if act is None or weight is None:
            continue
        if id(weight) not in made and (own := stored(weight)) is not None:
            made[id(weight)] = weight, own, hollow(own.shape, own.device)
        if id(weight) in made:
            _, module.__dict__["held"], module._parameters["weight"] = made[id(weight)]
            module.__dict__["forward"] = MethodType(act, module)


def hollow(shape: Sequence[int], device: torch.device) -> nn.Parameter:
    """Return a parameter of a given shape that is NaN everywhere and takes no memory."""
    nothing = torch.full((1,) * len(shape), torch.nan, device=device)
    return nn.Parameter(nothing.expand(*shape), requires_grad=False)


def make_whole(model: nn.Module) -> None:
    """Convert all held weights of a model to float32, in place, so that they can be trained."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        stored = module.__dict__.pop("held", None)
        if stored is not None:
            del module.__dict__["forward"]
            if id(stored) not in made:
                made[id(stored)] = nn.Parameter(whole(stored))
            module._parameters["weight"] = made[id(stored)]
        for name, weight in module.__dict__.pop("fused", {}).items():
            module._parameters[name] = nn.Parameter(weight.float())
        if "ran" in module.__dict__:
            getattr(module, "config")._experts_implementation = module.__dict__.pop("ran")  # noqa: B009 - as torch lacks it


def whole(stored: Stored) -> Float[Tensor, "rows i"]:
    """Return a stored weight as float32."""
    return _fill(torch.empty(stored.shape, device=stored.device), stored, 0)


def is_held(model: nn.Module) -> bool:
    """True if some weight of a model is held as it is stored."""
    return any({"held", "fused"} & module.__dict__.keys() for module in model.modules())


def _forward(module: nn.Module, first: bool) -> Callable[..., Tensor] | None:
    """Return the forward pass of a module with a held weight; None if unknown. *first*: it is the input embedding.

    Other embeddings with a forward pass of their own may change the ids before they look them up.
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
    """Look up rows of a held table; the module's type does all else, such as scaling, in float32."""
    stored: Stored = self.held
    kinds, places = torch.unique(ids, return_inverse=True)
    shadow = copy.copy(self)  # a copy with these rows alone; other threads may use the module
    shadow.__dict__ = {**self.__dict__, "_parameters": {"weight": stored.rows(kinds).float()}}
    return type(self).forward(shadow, places)


def _linear(self: Any, x: Float[Tensor, "... i"]) -> Float[Tensor, "... o"]:
    return multiply(x, self.held, self.bias, turned=False)


def _turned(self: Any, x: Float[Tensor, "... i"]) -> Float[Tensor, "... o"]:
    return multiply(x, self.held, self.bias, turned=True)


def multiply(x: Tensor, stored: Stored, bias: Tensor | None, turned: bool) -> Tensor:
    """Return x Wᵀ + b, or x W + b if *turned*, in autocast's type if autocast is on, else in the type of x."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        x = x.to(torch.get_autocast_dtype(kind))
    with torch.autocast(kind, enabled=False):
        found: Tensor = _HeldMap.apply(  # type: ignore[no-untyped-call]
            x, None if bias is None else bias.to(x.dtype), stored, turned
        )
    return found


class _HeldMap(torch.autograd.Function):
    """x Wᵀ + b, or x W + b; the backward pass converts W again, so that no copy of W is kept in between."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, stored: Stored, turned: bool) -> Tensor:
        ctx.stored, ctx.turned, ctx.biased = stored, turned, bias is not None
        return (_across if turned else _along)(x, stored, bias)

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:
        found = None
        if ctx.needs_input_grad[0]:  # the transposed map, which can be differentiated again
            found = _HeldMap.apply(gradients, None, ctx.stored, not ctx.turned)  # type: ignore[no-untyped-call]
        bias = gradients.flatten(0, -2).sum(0) if ctx.biased and ctx.needs_input_grad[1] else None
        return found, bias, None, None


def _along(x: Float[Tensor, "... i"], stored: Stored, bias: Tensor | None) -> Float[Tensor, "... rows"]:
    """Return x Sᵀ + b for a stored weight S."""
    parts = list(_parts(stored))
    if len(parts) == 1:
        return functional.linear(x, _brought(stored, *parts[0], x.dtype), bias)
    found = x.new_empty(*x.shape[:-1], stored.shape[0])
    for start, stop in parts:
        own = None if bias is None else bias[start:stop]
        found[..., start:stop] = functional.linear(x, _brought(stored, start, stop, x.dtype), own)
    return found


def _across(x: Float[Tensor, "... rows"], stored: Stored, bias: Tensor | None) -> Float[Tensor, "... i"]:
    """Return x S + b for a stored weight S."""
    parts = list(_parts(stored))
    if len(parts) == 1:
        return functional.linear(x, _brought(stored, *parts[0], x.dtype).t(), bias)
    found = x.new_zeros(*x.shape[:-1], stored.shape[1])
    for start, stop in parts:
        found += x[..., start:stop] @ _brought(stored, start, stop, x.dtype)
    return found if bias is None else found.add_(bias)


def _brought(stored: Stored, start: int, stop: int, kind: torch.dtype) -> Float[Tensor, "rows i"]:
    """Return rows of a weight in the type of a product; they are valid until the next call.

    On the CPU, each thread reuses one buffer: new buffers, freed between activations that stay, would leave holes in
    memory that are as large as the LM.
    """
    if stored.kind == kind:
        return stored.rows(slice(start, stop))
    shape = (stop - start, stored.shape[1])
    if stored.device.type != "cpu":
        return _fill(torch.empty(shape, dtype=kind, device=stored.device), stored, start)
    place: Tensor | None = getattr(_scratch, "place", None)
    if place is None or place.dtype != kind or place.numel() < math.prod(shape):
        place = _scratch.place = torch.empty(math.prod(shape), dtype=kind)
    return _fill(place[: math.prod(shape)].view(shape), stored, start)


def _fill(place: Float[Tensor, "rows i"], stored: Stored, start: int) -> Float[Tensor, "rows i"]:
    """Write rows from *start* on into *place*, a few at a time, so that they stay in the processor's cache."""
    step = max(1, _AT_A_TIME // max(1, stored.shape[1]))
    for first in range(0, len(place), step):
        rows = place[first : first + step]
        rows.copy_(stored.rows(slice(start + first, start + first + len(rows))))
    return place


_scratch = threading.local()


def _parts(stored: Stored) -> Iterator[tuple[int, int]]:
    """Return first row and end of each part in which a weight is read."""
    count, width = stored.shape
    step = max(1, CHUNK // max(1, width))
    return ((start, min(start + step, count)) for start in range(0, count, step))


SUMS = 2**29
"""Most numbers of sums over tokens, such as covariances, that are held at a time: 2 GiB."""
_RUNTIME = 7 * 10**8
"""Least bytes that Python, torch and transformers take."""
_SQUARED = 9
"""Memory for decomposing the covariances of a linear map in float64, as a multiple of their memory in float32."""


@dataclass(frozen=True)
class MemoryPlan:
    """Memory that a process may take to read an LM, and memory that it needs."""

    promised: int
    """Bytes that the process may take in all."""
    fixed: int
    """Bytes of the process and the weights, with room to convert a part of one weight to float32."""
    token: int
    """Bytes of a token in a forward and backward pass."""

    @property
    def batch_tokens(self) -> int:
        """Tokens of a batch, which may take half of the memory that *fixed* leaves."""
        return max(1, (self.promised - self.fixed) // 2 // self.token)

    def sums(self, longest: int, square: int, where: str, kept: int = 0) -> int:
        """Return how many numbers of sums over tokens may be held at a time beside an example of *longest* tokens.

        *square* is the size of the largest sum that cannot be split, *kept* the bytes that stay for all linear maps.

        Raises:
            ConfigError: that sum does not fit beside the example; the error begins with *where*.
        """
        fixed = self.fixed + kept
        least = fixed + max(longest * self.token + 4 * square, 4 * _SQUARED * square)
        if least > self.promised:
            raise too_little(self.promised, least, where, f"one example of {longest:,} tokens")
        left = self.promised - fixed
        batch = max(longest, self.batch_tokens) * self.token
        beside = left - batch if left - batch >= 4 * square else left - longest * self.token
        return max(square, min(SUMS, beside // 4, left // 4 - (_SQUARED - 1) * square))


def too_little(promised: int, least: int, where: str, what: str) -> ConfigError:
    """Return the error for too small a limit of memory."""
    return ConfigError(
        f"{where}: memory is {promised / 1e9:.1f} GB, but the process, the weights, one layer in float32 and {what} "
        f"need {least / 1e9:.1f} GB. Raise memory, lower max_tokens, or use a smaller LM."
    )


def size_read(folder: Path, name: str, half: bool) -> int:
    """Return the bytes in memory of the weights of an LM that is not trained, from the headers of its files.

    *half*: matrices in 2-byte types are kept as they are.
    """
    return sum(_bytes_held(entry, half) for entry in stored_tensors(folder, name).values())


def plan_memory(promised: int, folder: Path, name: str, weights: int) -> MemoryPlan:
    """Plan how to read an LM, whose weights take *weights* bytes, within *promised* bytes, before it is loaded.

    Raises:
        ConfigError: the weights and one token do not fit.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config(decoder=True)
    width, layers = config.hidden_size, config.num_hidden_layers
    inner = getattr(config, "intermediate_size", None) or 4 * width
    experts = int(getattr(config, "num_experts_per_tok", None) or 1)  # that read each token
    inner = max(inner, (getattr(config, "moe_intermediate_size", None) or inner) * experts)
    act = getattr(config, "activation_function", None) or getattr(config, "hidden_act", None)
    # What a layer keeps of a token for the backward pass and for methods that read activations. What the pass needs for
    # a moment is no more than two layers keep. Logits: those and a part of them, a copy of another type or a gradient.
    layer = (5 if act in ("gelu_new", "gelu_fast") else 4) * inner + 14 * width
    logits = (3 if getattr(config, "final_logit_softcapping", None) else 2) * config.vocab_size
    token = 4 * ((layers + 2) * layer + logits)
    fixed = max(_RUNTIME, used_memory()) + weights + 8 * CHUNK
    plan = MemoryPlan(promised, fixed, token)
    if fixed + token > promised:
        raise too_little(promised, fixed + token, f"lm {name}", "one token")
    return plan


def _bytes_held(entry: Mapping[str, Any], half: bool) -> int:
    """Return the bytes in memory of a tensor, given its entry in a file's header."""
    start, stop = entry["data_offsets"]
    if not (entry["dtype"] in HALF or entry["dtype"].startswith(_FLOATS)):
        return int(stop - start)
    return int(math.prod(entry["shape"])) * (2 if half and len(entry["shape"]) == 2 else 4)


@contextmanager
def without_weights() -> Iterator[None]:
    """Make models inside the context without memory for parameters (meta device); buffers are computed as always."""
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
