"""Names that airrep had before: methods and settings, each with what to type instead."""

from collections.abc import Mapping
from shlex import quote
from typing import Any

from airrep.attributors.settings import METHOD_SETTINGS
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


PAPERS = {"logra": {"modules", "rank", "sample", "exponent", "sketch"}, "tracin": {"modules"}}
"""Settings that were once the paper's where nothing else was said, by method."""
_AGAIN = {"readout": "--method rds", "curvature": "--method trak", "gradients": "--recipe lm-whole"}
"""What builds an index of today in place of an earlier one, by method or setting."""


def refuse_dropped(method: str, settings: Mapping[str, Any], where: str = "") -> None:
    """Refuse a method, or a setting, that airrep no longer has; errors begin with *where*.

    Raises:
        ConfigError: it says what to type instead.
    """
    if method in DROPPED:
        raise ConfigError(f"{where}method {method!r}: {method} does not exist any more. {DROPPED[method]}")
    for name, value in settings.items():
        entry = _entry(method, name)
        if entry is not None:
            raise ConfigError(f"{where}{method}: {name}={value!r}: does not exist any more. {entry[1]}")


def without_dropped(method: str, settings: Mapping[str, Any], where: str, *, channel: bool = False) -> dict[str, Any]:
    """Settings of an earlier index, *where*, or of a channel, without those that say nothing now.

    Raises:
        ConfigError: its method is gone, or a setting that said more.
    """
    if method in DROPPED:
        raise _earlier(where, f"method {method}", _AGAIN.get(method, "--recipe FILE.yaml"), settings, DROPPED[method])
    kept = dict(settings)
    for name, value in settings.items():
        entry = _entry(method, name)
        if entry is None:
            continue
        if value in entry[0]:
            del kept[name]
        elif channel and f"{method}.{name}" == "ekfac.rank":
            raise _earlier(where, "gradients=factors", _AGAIN["gradients"], settings)
        else:
            recipe = "--recipe FILE.yaml" if channel else _AGAIN.get(name, f"--method {method}")
            raise _earlier(where, f"{name}={value}", recipe, settings, entry[1])
    for one in _channels(method, kept):
        one["settings"] = without_dropped(one["method"], one.get("settings") or {}, where, channel=True)
    return kept


def refuse_earlier(method: str, settings: Mapping[str, Any], where: str) -> None:
    """Refuse an earlier index whose settings, as its manifest has them, meant others than they would now.

    Raises:
        ConfigError: it says which, and how to build the index again.
    """
    if method in PAPERS and "reduction" in settings and not settings.keys() & {"exponent", "sketch", "pool"}:
        raise _earlier(where, "preset=paper", f"--recipe papers/{method}", settings)
    for one in _channels(method, dict(settings)) if "warmed" not in settings else ():
        title = one.get("name") or one["method"]
        if PAPERS.get(one["method"], set()) - (one.get("settings") or {}).keys():
            raise _earlier(where, f"preset=paper of channel {title}", "--recipe FILE.yaml", settings)
        if one.get("relative") is True:
            raise _earlier(where, f"relative=true of channel {title}, without 1 - ρ", "--recipe FILE.yaml", settings)


def _entry(method: str, name: str) -> tuple[tuple[object, ...], str] | None:
    """The entry of a setting; none of another package's method, which may have any."""
    known = method in METHOD_SETTINGS or method == "channels"
    return SETTINGS.get(f"{method}.{name}") or SETTINGS.get(name) if known else None


def _channels(method: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The channels in an index's settings, copied; none of another method."""
    channels = settings.get("channels")
    if method != "channels" or not isinstance(channels, list):
        return []
    settings["channels"] = copied = [dict(one) for one in channels]
    return copied


def _earlier(where: str, what: str, recipe: str, settings: Mapping[str, Any], told: str = "") -> ConfigError:
    """The error of an index that an earlier version built, with the command that builds it again."""
    lm = settings.get("lm")
    command = f"airrep index DATA --out {quote(where)} --replace {recipe}" + (f" --lm {quote(lm)}" if lm else "")
    reason = f"{where}: was built by an earlier version with {what}, which is gone"
    return ConfigError(f"{reason}. {told + ' ' if told else ''}Build it again: {command}")
