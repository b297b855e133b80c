"""The parts of an example that losses of preferences read: rejected response, label, weight."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from airrep.corpus.corpus import Example
from airrep.lm.settings import LossName
from airrep.shapes import Float64

PAIRED = ("dpo", "orpo")
"""Those that read pairs."""
REFERRED = ("dpo", "kto")
"""Those that compare with the LM before the fine-tune."""
WEIGHTS = ("advantage", "reward")
"""Fields of an example that weigh it: the first that it has."""
_WANTED = {"true": 1.0, "1": 1.0, "chosen": 1.0, "false": -1.0, "0": -1.0, "rejected": -1.0}


def factor_of(example: Example, loss: LossName) -> float:
    """What an example's loss is multiplied by: its weight, or ±1 for an answer to give or to avoid; NaN: not told."""
    if loss == "weighted":
        found = next((value for name in WEIGHTS if (value := example.metadata.get(name)) is not None), None)
        numeric = isinstance(found, int | float) and not isinstance(found, bool)
        return float(found) if numeric and np.isfinite(found) else np.nan  # type: ignore[arg-type]
    if loss == "kto":
        told = (example.label, example.metadata.get("kto_tag"), example.metadata.get("preference"))
        return next((_WANTED[name] for one in told if (name := str(one).lower()) in _WANTED), np.nan)
    return 1.0


def factors_of(examples: Sequence[Example], loss: LossName) -> Float64[np.ndarray, " rows"]:
    """Those of several examples."""
    return np.array([factor_of(example, loss) for example in examples], np.float64)


def lacking(example: Example, loss: LossName) -> str:
    """What an example lacks to be learnt by a loss; empty if it has all."""
    if loss in PAIRED:
        return "" if example.is_pair else 'rejected response. Read pairs with preferences="pairs", or leave it out'
    if not np.isnan(factor_of(example, loss)):
        return ""
    wanted = f"{' or '.join(WEIGHTS)} that is a number" if loss == "weighted" else "label true or false"
    return f"{wanted}. Give one, or leave it out"


def one_response(key: str, loss: LossName) -> str:
    """Why a pair is refused where one response is read."""
    return (
        f'example "{key}": is a preference pair, and loss={loss} reads one response. Set loss=dpo or orpo, or read '
        'with preferences="chosen".'
    )


def summary_of(loss: LossName, beta: float) -> Mapping[str, Any]:
    """The loss as manifests have it; empty for the usual one."""
    if loss == "sft":
        return {}
    return {"loss": loss} if loss == "weighted" else {"loss": loss, "beta": beta}
