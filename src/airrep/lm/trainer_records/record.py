"""The record of a training: losses and rows of each step, and jumps."""

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from airrep.errors import ArtifactError, ConfigError, many

ABOUT = "record.json"
FORMAT = 1
_MAD = 1.4826  # standard deviation of normal values, divided by their median absolute deviation
_LEAST_SPREAD = 1e-3  # share of the expected loss; with less, rounding would count as a jump
_FEWEST = 5


@dataclass(frozen=True)
class LoggedStep:
    """One entry of a trainer's log: a step, or several if it logs less often."""

    first: int
    """First optimizer step, from 1."""
    last: int
    """Last step; equal to *first* if ``logging_steps`` is 1."""
    loss: float
    """Mean training loss that the trainer logged for these steps."""
    learning_rate: float | None
    """Learning rate that the trainer logged."""
    rows: tuple[int, ...]
    """Rows of the trainer's data set that these steps saw, from 0; empty for a stream."""
    row_losses: tuple[float | None, ...] = ()
    """Mean loss of each row's tokens that count, in nats, before the step; None, or no entries, if unknown."""
    tokens: tuple[int, ...] = ()
    """Number of each row's tokens that count."""


@dataclass(frozen=True)
class Jump:
    """Steps whose loss is far above the losses of the steps before."""

    first: int
    last: int
    loss: float
    expected: float
    """Median of the losses that were logged before."""
    deviations: float
    """(loss − expected) / (1.4826 · median absolute deviation of the losses that were logged before)."""
    rows: tuple[int, ...]
    """Rows of these steps; if their losses are known, rows that raised the loss most come first."""
    row_losses: tuple[float | None, ...] = ()
    """Loss of each of these rows, as in :attr:`LoggedStep.row_losses`."""
    shares: tuple[float, ...] = ()
    """Share of the jump that each of these rows caused: tokens · (its loss − expected), over the sum of all rows."""

    @classmethod
    def of(cls, step: LoggedStep, expected: float, deviations: float) -> "Jump":
        """Make the jump of a step; its rows are ordered by how much they raised the loss."""
        jump = cls(step.first, step.last, step.loss, expected, deviations, step.rows)
        if not step.row_losses:
            return jump
        lifts = [_lift(*one, expected) for one in zip(step.row_losses, step.tokens, strict=True)]
        order = sorted(range(len(lifts)), key=lambda place: -lifts[place])
        total = sum(lifts)
        known = math.isfinite(total) and total > 0
        return replace(
            jump,
            rows=tuple(step.rows[place] for place in order),
            row_losses=tuple(step.row_losses[place] for place in order),
            shares=tuple(lifts[place] / total for place in order) if known else (),
        )

    def rows_text(self, most: int) -> str:
        """Return the first *most* rows in a line, with losses and shares if known; empty for a stream."""
        told = []
        for place, row in enumerate(self.rows[:most]):
            loss = self.row_losses[place] if self.row_losses else None
            share = f", {100 * self.shares[place]:.0f} %" if self.shares else ""
            told.append(str(row) if loss is None else f"{row} ({loss:.3f}{share})")
        return ", ".join(told) + (", …" if len(self.rows) > most else "")


def _lift(loss: float | None, tokens: int, expected: float) -> float:
    """Return by how much a row raised the sum of losses; infinity if its loss is not finite."""
    if loss is None:
        return 0.0
    return tokens * (loss - expected) if math.isfinite(loss) else math.inf


@dataclass(frozen=True)
class TrainingRecord:
    """All that was logged of a training, in order."""

    path: Path
    """Folder of the record."""
    about: Mapping[str, Any]
    """Facts of the training: examples, batch size, world size, versions; ``ended_at`` if it ended."""
    steps: tuple[LoggedStep, ...]

    def __repr__(self) -> str:
        entries = many(len(self.steps), "entry", "entries")
        return f"TrainingRecord({self.path}: {entries}, {many(len(self.jumps()), 'jump')})"

    def jumps(self, deviations: float = 4.0, window: int = 20) -> list[Jump]:
        """Return the steps whose loss jumped, the largest jump first.

        A loss jumps if it is more than *deviations* robust deviations above the median of the *window* entries before
        it. The first five entries never count as jumps.
        """
        if not (deviations > 0 and window >= _FEWEST):
            raise ConfigError(
                f"jumps of the loss: deviations={deviations} (the threshold) must be above 0, and window={window} (the "
                f"number of earlier losses to compare with) must be at least {_FEWEST}."
            )
        losses = [step.loss for step in self.steps]
        found = []
        for place, step in enumerate(self.steps):
            before = losses[max(place - window, 0) : place]
            if len(before) < _FEWEST:
                continue
            expected, spread = _level(before)
            above = math.inf if not math.isfinite(step.loss) else (step.loss - expected) / spread
            if above > deviations:
                found.append(Jump.of(step, expected, above))
        return sorted(found, key=lambda jump: -jump.deviations)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return each entry as a dict of JSON values."""
        return [asdict(step) for step in self.steps]


def _level(losses: list[float]) -> tuple[float, float]:
    """Return median and robust deviation of the losses that are finite."""
    good = [loss for loss in losses if math.isfinite(loss)] or [0.0]
    expected = statistics.median(good)
    spread = _MAD * statistics.median(abs(loss - expected) for loss in good)
    return expected, max(spread, _LEAST_SPREAD * abs(expected), 1e-12)


def read_training_record(folder: str | Path) -> TrainingRecord:
    """Read what :class:`airrep.AttributionCallback` recorded; rows of several processes are put together.

    A last line that was cut off, by a kill for example, is left out.
    """
    place = Path(folder)
    try:
        about = dict(json.loads((place / ABOUT).read_bytes()))
        ranks = [[json.loads(line) for line in _whole_lines(path)] for path in rank_files(place).values()]
        merged = _merged(ranks, int(about.get("world_size", 1)))
    except FileNotFoundError:
        raise ArtifactError(f"{place}: holds no record of a training ({ABOUT}). Check the path.") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ArtifactError(
            f"{place}: the record of a training run in this folder cannot be read ({type(error).__name__}). Restore "
            "the folder, or record the training again."
        ) from error
    return TrainingRecord(place, about, tuple(merged))


def rank_files(folder: Path) -> dict[int, Path]:
    """Return the files of steps in a record, by the number of the process that wrote them, ascending."""
    found = (path.name.removeprefix("steps-").removesuffix(".jsonl") for path in folder.glob("steps-*.jsonl"))
    return {rank: folder / f"steps-{rank}.jsonl" for rank in sorted(int(name) for name in found if name.isdecimal())}


def _merged(ranks: list[list[dict[str, Any]]], processes: int) -> list[LoggedStep]:
    """Merge the entries of all processes by step; leave out entries at the end that some process did not write.

    A training that was resumed by more or fewer processes has entries of both numbers of processes.
    """
    if not ranks:
        return []
    known = [{(entry["first"], entry["last"]): entry for entry in entries} for entries in ranks]
    found = [[entries[key] for entries in known if key in entries] for key in known[0]]
    while found and len(found[-1]) < processes:
        found.pop()
    return [_together(parts) for parts in found]


def _whole_lines(path: Path) -> list[bytes]:
    """Lines of a file; a last one that was cut off is left out."""
    return [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def _together(parts: list[dict[str, Any]]) -> LoggedStep:
    """Merge one entry of all processes: each process logged the same mean loss, but its own rows."""
    first = parts[0]
    rows, losses, tokens = (
        tuple(one for part in parts for one in part.get(name, ())) for name in ("rows", "row_losses", "tokens")
    )
    step = LoggedStep(first["first"], first["last"], first["loss"], first["learning_rate"], rows)
    return replace(step, row_losses=losses, tokens=tokens) if len(losses) == len(tokens) == len(rows) else step


def steps_until(path: Path, step: int) -> list[bytes]:
    """Return the lines of a file of entries up to a step, after which a resumed training adds lines."""
    return [line for line in _whole_lines(path) if json.loads(line)["last"] <= step] if path.exists() else []
