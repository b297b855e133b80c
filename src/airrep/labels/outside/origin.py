"""The origin that labels of another trainer tell."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from airrep.labels.ledger import QueryLosses
from airrep.labels.plan import SubsetPlan
from airrep.labels.tasks import Place
from airrep.runtime.artifacts.digests import json_digest

_UNNAMED = "another trainer's"


def outside_origin(lm: str | None, trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The LM by its name alone, which nobody can check, and the trainer in place of settings of a fine-tune."""
    whole = lm or _UNNAMED
    # Two runs may each have a checkpoint-500; only the last part is shown, since paths are private.
    named = str(Path(whole).resolve()) if Path(whole).is_dir() else whole
    fingerprint = json_digest({"kind": "LM of another trainer", "name": named})
    known = {"name": Path(whole).name, "fingerprint": fingerprint}
    return {"lm": known, "precision": "unknown", "fine_tune": dict(trainer)}


def no_losses(plan: SubsetPlan, place: Place) -> QueryLosses:
    """The losses before any fine-tune where nobody measured them: NaN, which is read as missing."""
    return np.full(len(plan.query_rows(place.instance)), np.nan, np.float32)
