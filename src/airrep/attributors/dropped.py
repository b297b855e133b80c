"""Names that airrep had before: methods and settings, each with what to type instead."""

from collections.abc import Mapping
from typing import Any

from airrep.attributors.settings import METHOD_SETTINGS
from airrep.errors import ConfigError

DROPPED = {
    "readout": "It was behind what else there is: take --method rds, or --recipe lm.",
    "stack": "What is learnt from labels is a recipe: give it with --recipe.",
}
"""Methods, by name."""
SETTINGS = {
    "preset": "--method logra and tracin are what did best; --recipe papers/logra has the paper's settings.",
    "gradients": "Name a recipe: --recipe text, lm, lm-warm or lm-whole.",
    "map_weights": "All linear maps weigh alike: leave it out.",
    "projection": "Small matrices are the leading directions: leave it out.",
    "curvature": "Curvature is Kronecker-factored: leave it out, or take --method trak for raw Fisher.",
    "trak.objective": "Take --method dsdm for gradients of the loss.",
    "dsdm.objective": "Take --method trak for gradients of the log odds.",
    "trak.output_probability": "Take --method dsdm, which leaves it out.",
    "dsdm.output_probability": "Take --method trak, which has it.",
    "ekfac.reduction": "An example's loss is the sum over its tokens: leave it out.",
    "reduction": "An example's loss is the mean over its tokens: leave it out.",
    "influence.iterations": "Raise tolerance or damping instead.",
    "logra.pool": "A pool belongs to a recipe's channel: write pool: sum there.",
    "tracin.pool": "A pool belongs to a recipe's channel: write pool: sum there.",
    "logra.temperature": "A temperature belongs to a recipe's channel: write it there.",
    "tracin.temperature": "A temperature belongs to a recipe's channel: write it there.",
    "ekfac.rank": "Whole gradients are not kept: leave it out, or take --method logra, which keeps small ones.",
}
"""Settings, by name or by method and name."""


def refuse_dropped(method: str, settings: Mapping[str, Any], where: str = "") -> None:
    """Refuse a method, or a setting, that airrep no longer has; errors begin with *where*.

    Raises:
        ConfigError: it says what to type instead.
    """
    if method in DROPPED:
        raise ConfigError(f"{where}method {method!r}: {method} does not exist any more. {DROPPED[method]}")
    for name, value in settings.items():
        instead = SETTINGS.get(f"{method}.{name}") or SETTINGS.get(name)
        if instead and (method in METHOD_SETTINGS or method == "channels"):  # a method of another package may have any
            raise ConfigError(f"{where}{method}: {name}={value!r}: does not exist any more. {instead}")
