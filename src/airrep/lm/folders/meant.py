"""Which LM is meant: mostly the one before training."""

import logging
import re
from pathlib import Path

from airrep.errors import ConfigError, caution
from airrep.lm.folders.checkpoints import STATE, checkpoints_in
from airrep.lm.folders.forms import find_lm, short

_BESIDE = (
    *(STATE, "training_args.bin", "optimizer*", "scheduler.pt", "train_results.json", "trainer_log.jsonl"),
    *("zero_to_fp32.py", "record.json"),
)
"""Files that trainers, and our own record of a training, leave beside the weights that they trained."""
_CARD = re.compile(r"^base_model:\s*([\w.-]+/[\w.-]+)\s*$", re.MULTILINE)

_log = logging.getLogger(__name__)


def meant(name: str, merged: bool | None, base: str | None = None, trusted: bool = False) -> bool | None:
    """Whether adapters of an LM are to be added to it (True, None) or left out (False).

    Data are attributed by what they would change in the LM, so it is read as it is before. Adapters are left out, which
    is logged; a whole LM that was trained already is refused. A user who means it as it is says ``merged``.

    Args:
        name: folder or Hub id.
        merged: what was said; None: nothing.
        base: the LM that adapters belong to, where that is not the one that they name.
        trusted: whether its program code may be run.

    Raises:
        ConfigError: what a trainer leaves lies beside a whole LM; or as of :func:`airrep.lm.folders.forms.find_lm`.
    """
    if merged:
        return True
    files = find_lm(name, trusted, base)
    if files.adapter is None:
        if Path(name).is_dir():  # of the Hub's files not all are fetched, and which are there is chance
            _check_untrained(name, files.folder)
        return merged
    if merged is None:
        caution(
            _log,
            f"lm {short(name)}: is adapters, so the LM after training; the one before is read: their base, "
            f"{files.base} (--merged, or merged=true, reads both)",
        )
    return False


def _check_untrained(name: str, folder: Path) -> None:
    """Refuse a whole LM beside which a trainer's files lie."""
    found = [path.name for pattern in _BESIDE for path in sorted(folder.glob(pattern))]
    found += [path.name for path in checkpoints_in(folder).values()]
    if found:
        raise ConfigError(
            f"lm {name}: {short(found[0])} lies beside it, as a trainer leaves it, so it seems to be the LM after "
            f"training; expected the one before{_before(folder)}. Give that; or if this one is meant: --merged "
            "(merged=true)"
        )


def _before(folder: Path) -> str:
    """The LM that a model card names as the one before, in brackets; empty if there is none."""
    card = folder / "README.md"
    found = _CARD.search(card.read_text("utf-8", "replace")[:100_000]) if card.is_file() else None
    return "" if found is None else f" ({found[1]}, as its README.md says)"
