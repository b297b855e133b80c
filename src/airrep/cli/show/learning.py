"""Print labels, fine-tunes, training steps and verdicts."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from airrep.cli.show.console import err, print_fields, print_table, printable, say
from airrep.cli.show.results import size_of
from airrep.errors import many
from airrep.reports.tables import Table, counted, hundred, interval, seconds_text
from airrep.runtime.metering import LINE_SECONDS, hours_line
from airrep.runtime.remote.places import shown

if TYPE_CHECKING:
    from airrep.labels.farm import TaskReport
    from airrep.labels.labels import Labels
    from airrep.lm.network import StepDone
    from airrep.lm.trainer_records.record import Jump, TrainingRecord
    from airrep.lm.warmup import Warmup
    from airrep.training.result import TrainingResult

MOST_REASONS = 3
"""Most abandoned fine-tunes whose reasons are shown."""
MOST_JUMPS, MOST_ROWS = 10, 8
"""Most jumps of a training's loss that are shown, and rows of each; --json shows all."""

_TASKS = "fine-tunes and evaluations"


class TaskMeter:
    """Fine-tunes on stderr: how many, how long; then one line every ten seconds, each failure, and the last."""

    def __init__(self, track: Callable[[Mapping[str, Any]], None] | None = None) -> None:
        """Pass the numbers of each fine-tune also to *track*, if given."""
        self._track = track
        self._shown = -LINE_SECONDS
        self._begun = self._told = False

    def begin(self, done: int, total: int) -> None:
        """Print the number of remaining fine-tunes at the first call, as a callback for the farm's progress."""
        if not self._begun and done < total:
            _line(hours_line(total - done, None, what=_TASKS))
        self._begun = True

    def __call__(self, report: "TaskReport") -> None:
        now = time.monotonic()
        if self._track is not None:
            self._track(_numbers_of(report))
        if report.left and not self._told:
            self._told = True
            _line(hours_line(report.total - report.done, report.left, what=_TASKS))
        if report.error is not None:
            _line(f"{report.name}: given up: {printable(_reason(report.name, report.error))}")
        elif now - self._shown >= LINE_SECONDS or report.done == report.total:
            self._shown = now
            left = "" if report.left is None else f", {seconds_text(round(report.left))} left"
            _line(f"{report.name}: {report.seconds:.1f} s; {report.done:,} of {report.total:,} done{left}")


def _numbers_of(report: "TaskReport") -> dict[str, Any]:
    return {
        "fine-tunes/done": report.done,
        "fine-tunes/left": report.total - report.done,
        "fine-tunes/seconds": report.seconds,
        "fine-tunes/given up": int(report.error is not None),
    }


class StepMeter:
    """Training steps on stderr: one line every ten seconds, and each evaluation."""

    def __init__(self, steps: int | None = None, track: Callable[[Mapping[str, Any]], None] | None = None) -> None:
        """Show progress over *steps* steps; pass the numbers of each step also to *track*, if given."""
        self._steps, self._track = steps, track
        self._shown = self._last = time.monotonic()
        self._spent = 0.0
        self._seen = 0

    def __call__(self, record: Mapping[str, Any]) -> None:
        if self._track is not None:
            self._track({f"training/{name}": value for name, value in record.items()})
        self._spent += record["seconds"]
        self._seen += "loss" in record
        if "held_out_lds" in record:
            _line(f"step {record['step']:,}: held-out LDS × 100: {hundred(record['held_out_lds'])}")
        elif time.monotonic() - self._shown >= LINE_SECONDS:
            self._shown = time.monotonic()
            _line(f"step {record['step']:,}: loss {_number(record['loss'])}{self._left(record['step'])}")

    def fine_tune(self, done: "StepDone") -> None:
        """Count one step of a fine-tune, which, unlike one of a training, does not say how long it took."""
        now = time.monotonic()
        self._steps, seconds, self._last = done.steps, now - self._last, now
        if done.step == 2:  # the first also loads what it needs
            told = hours_line(1, seconds * done.steps, measured="on a step", resumes=False)
            _line(f"{many(done.steps, 'step')}: {told}")
        self({"step": done.step, "seconds": seconds, "loss": done.loss})

    def _left(self, step: int) -> str:
        if self._steps is None:
            return ""
        left = (self._steps - step) * self._spent / max(1, self._seen)
        return f", {seconds_text(round(left))} left at most"


def _number(loss: float | None) -> str:
    return "none (no pair of subsets differs enough)" if loss is None else f"{loss:.4f}"


def _line(text: str) -> None:
    err.print(text, highlight=False, markup=False, soft_wrap=True)


def next_step(labels: "Labels", use: str) -> str:
    """Return advice: *use* for finished labels, or how to complete missing or failed fine-tunes first."""
    if labels.growing:
        return (
            "labels (measured losses) that you added are unfinished: run the same command again, and the commands of "
            "the other parts"
        )
    if labels.complete:
        return f"next: {use}"
    missing, given_up = len(labels.missing), len(labels.quarantined)
    others = "run the other parts, or the same command without --part"
    again = "run the same command with --set retry_quarantined=true to try those again, or with --partial to skip them"
    ways = [way for way, count in ((others, missing), (again, given_up)) if count]
    return f"{missing:,} missing, {given_up:,} given up; {'; '.join(ways)}"


def print_labels(labels: "Labels") -> None:
    """Print the LM, fine-tuning and instances of labels, and how many of them are finished."""
    state, plan = labels.state, labels.plan
    asked = counted((len(plan.query_rows(number)) for number in range(len(plan))), "query", "queries")
    reading = {name: value for name, value in state["lm"].items() if name not in ("name", "fingerprint")}
    files = {} if labels.manifest is None else {"files": size_of(labels.manifest)}
    print_fields(
        {
            "path": shown(str(labels.path)),
            "kind": state["kind"],
            **files,
            "lm": _settings({"": state["lm"]["name"], **reading}).lstrip("="),
            "precision": state["precision"],
            "fine-tuning": _settings(state["fine_tune"]),
            "instances": f"{len(plan):,}, of {many(plan.subset_count, 'subset')} and {asked} each",
            "seeds": labels.seeds,
            "quarantined": _given_up(labels),
            "state": _state(labels),
        }
    )


def print_record(record: "TrainingRecord") -> None:
    """Print what a training was, and where its loss jumped."""
    about, steps, jumps = record.about, record.steps, record.jumps()
    last = f"{steps[-1].last:,}, loss {steps[-1].loss:.4g}" if steps else "none"
    print_fields(
        {
            "path": printable(str(record.path)),
            "kind": "record of a training",
            "examples": about.get("examples") or "not counted (streamed)",
            "batch": about.get("batch_size"),
            "last step": last,
            "state": "finished" if "ended_at" in about else "not finished",
            "jumps": f"{len(jumps):,}",
        }
    )
    if jumps:
        columns = ("steps", "loss", "expected", "deviations above", "rows (loss, share of the jump)")
        print_table(Table.of_texts(columns, map(_jump_texts, jumps[:MOST_JUMPS])))


def _jump_texts(jump: "Jump") -> tuple[str, ...]:
    steps = f"{jump.first:,} to {jump.last:,}" if jump.first < jump.last else f"{jump.last:,}"
    rows = jump.rows_text(MOST_ROWS)
    return steps, f"{jump.loss:.4g}", f"{jump.expected:.4g}", f"{jump.deviations:.1f}", rows or "unknown (streamed)"


def _settings(values: Mapping[str, Any]) -> str:
    return printable(", ".join(f"{name}={value}" for name, value in values.items()).replace("\n", "\\n"))


def _state(labels: "Labels") -> str:
    """ "finished", or how much is there and what to run."""
    if labels.complete:
        return f"finished; {next_step(labels, '')}" if labels.growing else "finished"
    total = len(labels.tasks)
    finished = total - len(labels.missing) - len(labels.quarantined)
    return f"unfinished, {finished:,} of {total:,} fine-tunes and evaluations: {next_step(labels, '')}"


def _given_up(labels: "Labels") -> str:
    found = labels.quarantined
    reasons = [f"{entry.place}: {_reason(str(entry.place), entry.reason)}" for entry in found[:MOST_REASONS]]
    more = [f"and {len(found) - MOST_REASONS:,} more"] if len(found) > MOST_REASONS else []
    return printable(f"{len(found):,}; {' '.join(reasons + more)}") if found else "none"


def _reason(task: str, told: str) -> str:
    """Return the reason why a task was abandoned, without the task's name at the front."""
    return told.removeprefix(f"{task}: ")


def print_training(result: "TrainingResult") -> None:
    """Print the LDS on unseen instances, before and after."""
    results = result.training["results"]
    if not results:
        say(
            "airrep did not measure how good the encoder is. To measure it, give other labels (measured losses) with "
            "--held-out."
        )
        return
    columns = ("instances", "LDS × 100 before", "after", "gain", "95 % interval")
    rows = []
    for name, part in results.items():
        values = (part["start"]["lds"], part["trained"]["lds"], part["gain"]["difference"])
        rows.append((name.replace("_", "-"), *map(hundred, values), interval(part["gain"]["interval"])))
    print_table(Table.of_texts(columns, rows))


def warmup_summary(warmup: "Warmup") -> dict[str, Any]:
    """Return the JSON object that `airrep warmup --json` prints."""
    losses = warmup.loss_per_step
    return {
        "path": str(warmup.path),
        "lm": warmup.base["name"],
        "steps": len(losses),
        "first_loss": float(losses[0]),
        "last_loss": float(losses[-1]),
        "checkpoints": [{"path": str(path), "rate": rate} for path, rate in warmup.checkpoints],
        "adapter": None if warmup.adapter is None else str(warmup.adapter),
    }
