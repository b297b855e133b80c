"""A callback of transformers' Trainer that records steps and keeps checkpoints."""

import json
import math
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.distributed as dist
import transformers
from torch.nn.functional import cross_entropy
from torch.utils.data import IterableDataset
from transformers import TrainerCallback

from airrep.errors import ArtifactError, ConfigError, many
from airrep.lm.trainer_records.record import ABOUT, FORMAT, rank_files, read_training_record, steps_until
from airrep.runtime.publishing import append_line, remove_leftovers, write_file
from airrep.runtime.remote.places import here_only

IGNORED = -100
"""Label of a token that the loss leaves out."""
_PIECE = 1 << 24
"""Logits that are converted at a time: a batch may have 10^10 in half precision, too many for a copy."""


class RowLoss(NamedTuple):
    """Loss of a row in a step."""

    loss: float | None
    """Mean over the row's tokens that count, in nats; None if it is unknown, or if no token counts."""
    tokens: int
    """Number of the row's tokens that count."""


UNKNOWN = RowLoss(None, 0)
_Summed: TypeAlias = tuple[torch.Tensor, torch.Tensor]


class RowLosses:
    """A forward hook that keeps the loss of each row of a batch; the model and its gradient stay as they are."""

    def __init__(self) -> None:
        self._passes: list[_Summed | None] = []
        self._batches: list[tuple[int, _Summed | None]] = []

    def __call__(self, model: torch.nn.Module, _: Any, inputs: Mapping[str, Any], output: Any) -> None:
        """Note a training pass; its losses stay on the device until :meth:`take`."""
        if not (model.training and torch.is_grad_enabled()):
            return
        labels: Any = inputs.get("labels")
        logits: Any = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
        fits = isinstance(labels, torch.Tensor) and isinstance(logits, torch.Tensor) and logits.ndim == 3
        if fits and logits.shape[:2] == labels.shape:
            self._passes.append(summed_losses(logits.detach(), labels, shifted=_is_causal(model)))
        else:
            self._passes.append(None)

    def end_batch(self, rows: int) -> None:
        """End a batch of *rows* rows; their losses are known only if the batch took a single pass of all rows."""
        passes, self._passes = self._passes, []
        known = passes[0] if len(passes) == 1 else None
        self._batches.append((rows, known if known is not None and len(known[0]) == rows else None))

    def take(self) -> list[RowLoss]:
        """Return the losses of all rows since the last call, in order."""
        batches, self._batches = self._batches, []
        found: list[RowLoss] = []
        for rows, known in batches:
            if known is None:
                found += [UNKNOWN] * rows
                continue
            pairs = zip(*(values.tolist() for values in known), strict=True)
            found += [RowLoss(total / count if count else None, int(count)) for total, count in pairs]
        return found


def summed_losses(logits: torch.Tensor, labels: torch.Tensor, *, shifted: bool) -> _Summed:
    """Return each row's cross-entropy, summed over tokens that count, and their number, ``(rows,)`` float32 each.

    *logits* ``(rows, tokens, words)``, *labels* ``(rows, tokens)``; *shifted*: logits predict the token after theirs.
    No value is read, so an accelerator need not wait.
    """
    if shifted:
        logits, labels = logits[:, :-1], labels[:, 1:]
    step = max(1, _PIECE // logits.shape[-1])
    sums = torch.zeros(len(labels), dtype=torch.float32, device=logits.device)
    for row in range(len(labels)):
        for first in range(0, labels.shape[1], step):
            piece = slice(first, first + step)
            sums[row] += cross_entropy(
                logits[row, piece].float(), labels[row, piece], ignore_index=IGNORED, reduction="sum"
            )
    return sums, (labels != IGNORED).sum(1).float()


def _is_causal(model: torch.nn.Module) -> bool:
    """False for models whose logits predict the token at their own place; models of peft count as their base."""
    peft: Any = getattr(model, "get_base_model", None)
    inner = model if peft is None else peft()
    config = getattr(inner, "config", None)
    return not (getattr(config, "is_encoder_decoder", False) or type(inner).__name__.endswith("ForMaskedLM"))


class RecordedBatches:
    """A batch sampler that remembers the batches that it yields, in order; it wraps the sampler *inside*.

    A data loader reads the sampler in this process, whatever its workers do, and ahead of the step that uses a batch.
    So the rows of a batch wait here until :meth:`next_rows` takes them.
    """

    def __init__(self, inside: Iterable[list[int]], numbers: Any = None) -> None:
        """Take *numbers*, each row's number in the given data, if the trainer left rows out or moved them."""
        self.inside = inside
        self.numbers = numbers
        self._waiting: deque[list[int]] = deque()
        self._skip = 0

    def __iter__(self) -> Iterator[list[int]]:
        self._waiting.clear()  # batches of an epoch that ended early
        skip, self._skip = self._skip, 0
        for number, batch in enumerate(self.inside):
            if number >= skip:  # a resumed trainer asks for these and drops them
                self._waiting.append([int(row if self.numbers is None else self.numbers[row]) for row in batch])
            yield batch

    def __len__(self) -> int:
        return len(self.inside)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "inside":
            raise AttributeError(name)
        return getattr(self.inside, name)

    def skip(self, count: int) -> None:
        """Do not remember the first *count* batches of the next pass."""
        self._skip = count

    def next_rows(self) -> list[int]:
        """Return the rows of the next batch that was used; empty if they are unknown."""
        return self._waiting.popleft() if self._waiting else []


def record_batches(loader: Any) -> RecordedBatches | None:
    """Let a data loader record its batches; None if it reads a stream, whose rows have no numbers.

    trl maps a data set, which keeps its rows and their order, and then drops some rows and may shuffle the others.
    datasets stores both changes as a list of the rows that are left.
    """
    while hasattr(loader, "base_dataloader"):  # accelerate wraps the loader that does the work
        loader = loader.base_dataloader
    batches = getattr(loader, "batch_sampler", None)
    if batches is None or isinstance(getattr(loader, "dataset", None), IterableDataset):
        return None
    if isinstance(batches, RecordedBatches):  # training began again, for example with a smaller batch
        return batches
    found = RecordedBatches(batches, given_rows(loader.dataset))
    object.__setattr__(loader, "batch_sampler", found)  # DataLoader forbids a new sampler, but the order stays
    return found


def given_rows(dataset: Any) -> np.ndarray | None:
    """Return each row's number in the table that a data set was filtered or shuffled from; None if no row moved.

    Example:
        >>> import datasets
        >>> given_rows(datasets.Dataset.from_dict({"a": [1, 2, 3]}).filter(lambda row: row["a"] > 1)).tolist()
        [1, 2]
    """
    left = getattr(dataset, "_indices", None)  # no public name has it
    return None if left is None else np.asarray(left.column(0).to_numpy())


def rows_given(dataset: Any) -> int | None:
    """Return the number of rows in the table that a data set was filtered from; None if it has no length."""
    if given_rows(dataset) is not None:
        return len(dataset.data)
    return len(dataset) if hasattr(dataset, "__len__") else None


_ROWS_TOLD = 10


class AttributionCallback(TrainerCallback):  # type: ignore[misc]
    """Records the rows and the loss of each step of a ``Trainer``; lets it save checkpoints for gradient methods.

    Works in ``transformers.Trainer`` and its subclasses, such as trl's ``SFTTrainer``. It does not change the training.
    With ``logging_steps=1`` each step has its own loss. With a larger value, several steps share the mean that the
    trainer logged.

    Args:
        out: folder of the record; :func:`airrep.open` reads it. Must be empty, or hold the record of
            the run that is resumed.
        checkpoints: number of checkpoints that the trainer saves, at even distances, the last one at the end; 0 leaves
            saving to the trainer's arguments. ``--lm OUTPUT_DIR --set checkpoints=all`` reads them.
        replace: replace a record of another run.
        row_losses: record the loss of each row, so that a jump names the rows that caused it. Each step then reads its
            logits once more, with little extra memory.

    Raises:
        ConfigError: when training begins: *out* holds something else, or the trainer would delete checkpoints.
        ArtifactError: when training begins: *out* cannot be written.

    Example:
        >>> callback = airrep.AttributionCallback("runs/record", checkpoints=4)
        >>> callback.out.name  # give it to a Trainer: callbacks=[callback]
        'record'
    """

    def __init__(
        self, out: str | Path, *, checkpoints: int = 0, replace: bool = False, row_losses: bool = True
    ) -> None:
        if checkpoints < 0:
            raise ConfigError(f"checkpoints is {checkpoints}. Give 0 or a positive number.")
        self.out = here_only(out, "a training is recorded")
        self.checkpoints = checkpoints
        self.replace = replace
        self.row_losses = row_losses
        self._hook: Any = None
        self._passes = RowLosses()
        self._file: Path | None = None
        self._batches: RecordedBatches | None = None
        self._rows: list[int] = []
        self._first = 1
        self._saved_at: set[int] = set()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the record, and let the data loader record its rows."""
        self._plan_checkpoints(args, state)
        rank = int(getattr(args, "process_index", 0))
        loader = kwargs.get("train_dataloader")
        self._batches = record_batches(loader)
        self._open(state.global_step, rank, self._about(args, state, loader))
        self._rows, self._first = [], state.global_step + 1
        self._watch(kwargs.get("model"))
        if self._batches is not None:
            self._batches.skip(_skipped(args, state, loader))
        elif rank == 0:
            _tell(f"{self.out}: the training data are a stream without row numbers, so only losses are recorded")
        if rank == 0 and self._batches is not None:
            self._tell_rows(args, getattr(loader, "dataset", None))

    def _tell_rows(self, args: Any, dataset: Any) -> None:
        """Print a note if recorded row numbers are not those of the given data, or if the trainer dropped rows."""
        given = rows_given(dataset)
        if getattr(args, "packing", False):
            _tell(f"{self.out}: the trainer packs rows, so recorded row numbers are those of packs, not of your data")
        elif given is not None and given > len(dataset):
            _tell(
                f"{self.out}: the trainer left out {given - len(dataset):,} of {given:,} rows; recorded row "
                "numbers still count all rows"
            )

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the rows of a batch whose gradient is accumulated with the next batch's."""
        self._note_rows()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the rows of a step's last batch; save a checkpoint if its time has come."""
        self._note_rows()
        if state.global_step in self._saved_at:
            control.should_save = control.should_log = True  # a checkpoint is weighted by the rate logged before it

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Record what the trainer logs about the steps since its last log."""
        if not logs or "loss" not in logs or self._file is None or state.global_step < self._first:
            return
        losses = self._passes.take()
        entry = {
            "first": self._first,
            "last": state.global_step,
            "loss": _loss_of(logs, losses),
            "learning_rate": _number(logs.get("learning_rate")),
            "rows": self._rows,
        }
        if any(one.loss is not None for one in losses):
            entry |= {"row_losses": [one.loss for one in losses], "tokens": [one.tokens for one in losses]}
        append_line(self._file, json.dumps(entry))
        self._rows, self._first = [], state.global_step + 1

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Print where the loss jumped."""
        written, self._file = self._file, None  # another training is another record
        self._watch(None)
        _told_by_first(None)  # other processes may still write their last entry
        if int(getattr(args, "process_index", 0)) or written is None:
            return
        self._write_about({**json.loads((self.out / ABOUT).read_bytes()), "ended_at": state.global_step})
        jumps = read_training_record(self.out).jumps()
        if not jumps:
            _tell(f"{self.out}: {many(state.global_step, 'step')} recorded; the loss never jumped")
            return
        worst = jumps[0]
        rows = worst.rows_text(_ROWS_TOLD)
        where = f"step {worst.last}" if worst.first == worst.last else f"steps {worst.first} to {worst.last}"
        _tell(
            f"{self.out}: {many(state.global_step, 'step')} recorded; the loss jumped {many(len(jumps), 'time')}, "
            f"most at {where} ({worst.loss:.3f} where {worst.expected:.3f} was expected; rows {rows})"
        )

    def _watch(self, model: Any) -> None:
        """Read the losses of rows from a model's passes; stop if *model* is None."""
        if self._hook is not None:
            self._hook.remove()
        self._hook, self._passes = None, RowLosses()
        if model is not None and self.row_losses and self._batches is not None:
            self._hook = model.register_forward_hook(self._passes, with_kwargs=True)

    def _note_rows(self) -> None:
        if self._batches is not None:
            rows = self._batches.next_rows()
            self._rows += rows
            self._passes.end_batch(len(rows))

    def _plan_checkpoints(self, args: Any, state: Any) -> None:
        limit = getattr(args, "save_total_limit", None)
        if self.checkpoints and limit is not None and limit < self.checkpoints:
            raise ConfigError(
                f"save_total_limit is {limit}, so the trainer would delete some of the {self.checkpoints} checkpoints. "
                f"Remove save_total_limit, or raise it to {self.checkpoints}."
            )
        count = min(self.checkpoints, state.max_steps)
        self._saved_at = {round(number * state.max_steps / count) for number in range(1, count + 1)}

    def _about(self, args: Any, state: Any, loader: Any) -> dict[str, Any]:
        examples: Any = getattr(loader, "dataset", None)
        return {
            "format": FORMAT,
            "examples": rows_given(examples) if self._batches is not None else None,
            "batch_size": args.per_device_train_batch_size,
            "gradient_accumulation_steps": args.gradient_accumulation_steps,
            "world_size": int(getattr(args, "world_size", 1)),
            "logging_steps": args.logging_steps,
            "seed": args.seed,
            "max_steps": state.max_steps,
            "output": Path(args.output_dir).name,
            "packages": {"transformers": transformers.__version__},
        }

    def _open(self, step: int, rank: int, about: dict[str, Any]) -> None:
        """Make the folder, or continue the record in it after a *step*; each process has a file of its own."""
        problem = self._prepare(step, about) if rank == 0 else None
        problem = _told_by_first(problem)  # no process may touch what the first one refuses
        if problem is not None:
            raise problem
        self._file = self.out / f"steps-{rank}.jsonl"
        try:
            write_file(self._file, b"".join(steps_until(self._file, step)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._unwritten(error) from error

    def _prepare(self, step: int, about: dict[str, Any]) -> Exception | None:
        """Make the folder, in the first process; return the error if that fails."""
        begun_here = self._file is not None
        try:
            used = self.out.is_dir() and any(self.out.iterdir())
            if step == 0 and used and not (begun_here or self.replace):
                return ConfigError(f"{self.out}: is not empty. Empty it, give another folder, or pass replace=True.")
            self.out.mkdir(parents=True, exist_ok=True)
            remove_leftovers(self.out)
            for rank, file in rank_files(self.out).items():
                if rank >= about["world_size"]:  # left by a training with more processes
                    write_file(file, b"".join(steps_until(file, step)))
            self._write_about(about)
        except (OSError, ValueError, KeyError, TypeError) as error:
            return self._unwritten(error)
        return None

    def _unwritten(self, error: Exception) -> ArtifactError:
        return ArtifactError(f"{self.out}: the record cannot be written ({error}). Give another folder.")

    def _write_about(self, about: dict[str, Any]) -> None:
        write_file(self.out / ABOUT, json.dumps(about, indent=1).encode())


def _skipped(args: Any, state: Any, loader: Any) -> int:
    """Return how many batches at the start of a resumed epoch the trainer reads and drops."""
    if state.global_step == 0 or args.ignore_data_skip:
        return 0
    several = args.gradient_accumulation_steps
    steps = max(-(-len(loader) // several), 1)
    return int(state.global_step % steps * several)


def _told_by_first(problem: Exception | None) -> Exception | None:
    """Wait for all processes, then return the first one's *problem*; a lone process returns its own."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return problem
    dist.barrier()
    told: list[Exception | None] = [problem]
    dist.broadcast_object_list(told, src=0)
    return told[0]


def _loss_of(logs: Mapping[str, Any], rows: Iterable[RowLoss]) -> float:
    """Return the loss that a trainer logged; NaN if it left out losses that are not finite, or logged 0 for them."""
    broken = any(row.loss is not None and not math.isfinite(row.loss) for row in rows)
    dead = not logs["loss"] and not math.isfinite(logs.get("grad_norm") or 0.0)
    return math.nan if broken or dead else float(logs["loss"])


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _tell(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - trainers log in many ways, and this is said once
