"""Names that airrep had before: methods and settings, each with what to type instead."""

from collections.abc import Mapping
from typing import Any

from airrep.errors import ConfigError

DROPPED = {
    "readout": "It was behind what else there is: take --method rds, or --recipe lm.",
    "stack": "What is learnt from labels is a recipe: give it with --recipe.",
}
"""Methods, by name."""
SETTINGS: Mapping[str, tuple[tuple[object, ...], str]] = {
    "preset": ((), "--method logra and tracin are what did best; --recipe papers/logra has the paper's settings."),
    "gradients": ((None,), "Name a recipe: --recipe text, lm, lm-warm or lm-whole."),
    "map_weights": ((None,), "All linear maps weigh alike: leave it out."),
    "projection": (("pca",), "Small matrices are the leading directions: leave it out."),
    "curvature": (("kfac",), "Curvature is Kronecker-factored: leave it out, or take --method trak for raw Fisher."),
    "trak.objective": (("margin",), "Take --method dsdm for gradients of the loss."),
    "dsdm.objective": (("loss",), "Take --method trak for gradients of the log odds."),
    "trak.output_probability": ((True,), "Take --method dsdm, which leaves it out."),
    "dsdm.output_probability": ((False,), "Take --method trak, which has it."),
    "ekfac.reduction": (("sum",), "An example's loss is the sum over its tokens: leave it out."),
    "reduction": (("mean",), "An example's loss is the mean over its tokens: leave it out."),
    "influence.iterations": ((1000,), "Raise tolerance or damping instead."),
    "logra.pool": ((None, "sum", "diminishing"), "A pool belongs to a recipe's channel: write pool: sum there."),
    "tracin.pool": ((None, "sum", "signed-attention"), "A pool belongs to a recipe's channel: write pool: sum there."),
    "logra.temperature": ((1.0,), "A temperature belongs to a recipe's channel: write it there."),
    "tracin.temperature": ((1.0, 0.3), "A temperature belongs to a recipe's channel: write it there."),
    "ekfac.rank": (
        (None,),
        "Whole gradients are not kept: leave it out, or take --method logra, which keeps small ones.",
    ),
}
"""Settings by name, or by method and name: values that an earlier index has without a loss, and what to type."""


def refuse_dropped(method: str, settings: Mapping[str, Any], where: str | None = None) -> None:
    """Refuse a method, or a setting, that airrep no longer has; *where* names the index that has it.

    Raises:
        ConfigError: it says what to type instead.
    """
    told = DROPPED.get(method)
    if told is not None:
        raise ConfigError(f"{where or f'method {method!r}'}: {method} does not exist any more. {_way_out(told, where)}")
    for name, value in settings.items():
        entry = SETTINGS.get(f"{method}.{name}") or SETTINGS.get(name)
        if entry is not None:
            problem = f"{where or method}: {name}={value!r}: does not exist any more."
            raise ConfigError(f"{problem} {_way_out(entry[1], where)}")


def without_dropped(method: str, settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Settings of an earlier index without those that say nothing now; ConfigError where one said more."""
    entries = {name: SETTINGS.get(f"{method}.{name}") or SETTINGS.get(name) for name in settings}
    kept = {
        name: value for name, value in settings.items() if (entry := entries[name]) is None or value not in entry[0]
    }
    refuse_dropped(method, kept, where)
    channels = kept.get("channels")
    if method == "channels" and isinstance(channels, list):
        kept["channels"] = [
            {**one, "settings": without_dropped(one["method"], one.get("settings") or {}, where)} for one in channels
        ]
    return kept


def _way_out(told: str, where: str | None) -> str:
    return told if where is None else f"Build the index again with --replace. {told}"
