"""AdamW with rates of its own for the head; their schedule."""

import math
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from airrep.training.linear.beside import NAME
from airrep.training.settings import TrainingSettings
from airrep.training.trunk import Trunk

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


Part: TypeAlias = Literal["layers", "heads", "channels"]
"""Weights with a learning rate of their own."""
RATES: Mapping[Part, Callable[[TrainingSettings], float]] = {
    "layers": lambda settings: settings.learning_rate,
    "heads": lambda settings: settings.head_learning_rate or settings.learning_rate,
    "channels": lambda settings: settings.channel_learning_rate,
}


def _part_of(name: str) -> Part:
    return "heads" if name.startswith("heads.") else "channels" if name.startswith(NAME) else "layers"


def rate_factor(step: int, settings: TrainingSettings) -> float:
    """Share of the full learning rates at step *step*, from 0: warm-up, then the schedule."""
    rising = min(settings.warmup_steps, settings.steps // 2)  # the full rate is reached, however short the run
    if step < rising:
        return (step + 1) / (rising + 1)
    if settings.schedule == "constant":
        return 1.0
    done = (step - rising) / max(1, settings.steps - rising)
    return 1 - done if settings.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2


class Optimiser:
    """AdamW over the weights that learn; weight decay can pull them to *start* in place of 0."""

    def __init__(self, trunk: Trunk, settings: TrainingSettings, start: Mapping[str, Tensor]) -> None:
        self._settings = settings
        self._learning = dict(trunk.learning())
        self._start = start if settings.pull_to_start else {}
        groups = [self._group(part, matrix) for part in RATES for matrix in (False, True)]
        self._adam = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=0.0, betas=settings.betas, fused=True
        )

    def _group(self, part: Part, matrix: bool) -> dict[str, object]:
        chosen = self._settings
        rate = RATES[part](chosen)
        decay = chosen.weight_decay if matrix and not chosen.pull_to_start else 0.0
        # Biases and norms, which are no matrices, do not decay.
        names = [n for n, p in self._learning.items() if _part_of(n) == part and (p.ndim > 1) == matrix]
        return {"params": [self._learning[name] for name in names], "full_rate": rate, "weight_decay": decay}

    def update(self, step: int) -> tuple[float, float]:
        """Take one step; return the gradient's length before clipping, and the layers' learning rate."""
        longest = math.inf if self._settings.clip is None else self._settings.clip
        length = nn.utils.clip_grad_norm_(list(self._learning.values()), longest)
        factor = rate_factor(step, self._settings)
        for group in self._adam.param_groups:
            group["lr"] = group["full_rate"] * factor
        if math.isfinite(float(length)):  # else the weights stay as they were, and the run ends
            self._pull()
            self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        return float(length), self._settings.learning_rate * factor

    @torch.no_grad()
    def _pull(self) -> None:
        for group in self._adam.param_groups:
            held = {id(parameter) for parameter in group["params"]}
            for name, start in self._start.items():
                parameter = self._learning[name]
                if id(parameter) in held and parameter.ndim > 1:
                    parameter.lerp_(start.to(parameter), min(1.0, group["lr"] * self._settings.weight_decay))

    def state(self) -> dict[str, Tensor]:
        """Weights and moments, by name."""
        state = {f"weight.{name}": parameter.detach() for name, parameter in self._learning.items()}
        for name, parameter in self._learning.items():
            held = self._adam.state.get(parameter, {})
            state |= {f"{moment}.{name}": held[moment] for moment in MOMENTS if moment in held}
        return state

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Put back what :meth:`state` gave."""
        for name, parameter in self._learning.items():
            parameter.copy_(state[f"weight.{name}"])
            held = {moment: state[f"{moment}.{name}"] for moment in MOMENTS if f"{moment}.{name}" in state}
            if held:
                self._adam.state[parameter] = {moment: value.to(parameter.device) for moment, value in held.items()}

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights that learn, on the CPU."""
        return {name: parameter.detach().to("cpu", copy=True) for name, parameter in self._learning.items()}
