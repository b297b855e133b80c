"""What the callback records in transformers' own Trainer: rows, losses, checkpoints, jumps."""

import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from transformers import Trainer, TrainingArguments
from worlds.tiny_lms import tiny_network

from airrep import AttributionCallback
from airrep.cli.show.learning import print_record
from airrep.errors import ArtifactError, ConfigError
from airrep.lm.folders.forms import trainer_checkpoints
from airrep.lm.trainer_records import callback
from airrep.lm.trainer_records.callback import IGNORED, RecordedBatches, RowLosses
from airrep.lm.trainer_records.record import read_training_record

LENGTH = 6


class Rows(torch.utils.data.Dataset):
    """Sequences whose second token is their row, so that the model itself sees which rows it gets."""

    def __init__(self, count: int, bad: tuple[int, ...] = ()) -> None:
        self.count, self.bad = count, bad

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        ids = torch.tensor([1, row + 2, 3, 3, 3, 3])
        labels = torch.full((LENGTH,), 9) if row in self.bad else ids.clone()
        return {"input_ids": ids, "labels": labels}


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self) -> Any:
        return iter([Rows(8)[row] for row in range(8)] * 4)


class Watched(Trainer):
    """Remembers which rows each step's forward passes saw."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.seen: dict[int, list[int]] = {}

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.seen.setdefault(self.state.global_step + 1, []).extend((inputs["input_ids"][:, 1] - 2).tolist())
        return super().training_step(model, inputs, *args, **kwargs)


def train(folder: Path, callback: AttributionCallback, data: Any = None, resume: Any = None, **changes: Any) -> Watched:
    torch.manual_seed(0)
    settings = {
        "per_device_train_batch_size": 3, "num_train_epochs": 2, "learning_rate": 1e-3, "logging_steps": 1,
        "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True,
        "remove_unused_columns": False, "dataloader_pin_memory": False,
    }  # fmt: skip
    arguments = TrainingArguments(str(folder), **{**settings, **changes})
    made = Watched(
        tiny_network(vocab_size=64), arguments, train_dataset=Rows(16) if data is None else data, callbacks=[callback]
    )
    made.train(resume_from_checkpoint=resume)
    return made


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_rows_of_each_step_are_those_that_the_model_saw(tmp_path: Path, accumulated: int, workers: int) -> None:
    how = {"gradient_accumulation_steps": accumulated, "dataloader_num_workers": workers}
    made = train(tmp_path / "out", AttributionCallback(tmp_path / "record"), **how)
    record = read_training_record(tmp_path / "record")
    assert [(step.first, step.last) for step in record.steps] == [(step, step) for step in sorted(made.seen)]
    assert [list(step.rows) for step in record.steps] == [made.seen[step] for step in sorted(made.seen)]
    assert record.about["examples"] == 16
    assert record.about["ended_at"] == made.state.global_step
    logged = [line["loss"] for line in made.state.log_history if "loss" in line]
    assert [step.loss for step in record.steps] == logged


def test_stretches_of_steps_share_what_was_logged(tmp_path: Path) -> None:
    made = train(tmp_path / "out", AttributionCallback(tmp_path / "record"), logging_steps=4)
    first, *_ = read_training_record(tmp_path / "record").steps
    assert (first.first, first.last) == (1, 4)
    assert list(first.rows) == [row for step in range(1, 5) for row in made.seen[step]]


@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_resumed_training_goes_on_with_its_record(tmp_path: Path, accumulated: int) -> None:
    more = {"gradient_accumulation_steps": accumulated, "save_strategy": "steps", "save_steps": 2, "max_steps": 7}
    whole = train(tmp_path / "whole", AttributionCallback(tmp_path / "a"), **more)
    record = tmp_path / "b"
    train(tmp_path / "cut", AttributionCallback(record), **more)
    (record / "steps-0.jsonl").write_bytes((record / "steps-0.jsonl").read_bytes() + b'{"first": 8, "la')
    again = train(tmp_path / "cut", AttributionCallback(record), resume=str(tmp_path / "cut" / "checkpoint-4"), **more)
    assert sorted(again.seen) == [5, 6, 7]
    expected = read_training_record(tmp_path / "a").steps
    found = read_training_record(record).steps
    assert [step.rows for step in found] == [step.rows for step in expected]
    assert [list(step.rows) for step in found][4:] == [again.seen[step] for step in (5, 6, 7)]
    assert [list(step.rows) for step in found] == [whole.seen[step] for step in sorted(whole.seen)]


def test_a_bad_batch_is_found_by_its_jump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Rows(48, bad=(40, 41, 42))
    changes = {"learning_rate": 3e-2, "num_train_epochs": 1, "train_sampling_strategy": "sequential"}
    train(tmp_path / "out", AttributionCallback(tmp_path / "record"), data, **changes)
    (worst, *_) = read_training_record(tmp_path / "record").jumps()
    assert {40, 41, 42} & set(worst.rows)
    assert worst.loss > worst.expected
    told = capsys.readouterr().err
    assert f"most at step {worst.last} " in told
    assert str(worst.rows[0]) in told


@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_jump_tells_row_by_row_which_rows_made_it(tmp_path: Path, accumulated: int, capsys: Any) -> None:
    """Two rows of a batch ask for other tokens: each step's loss is the mean of its rows', and these two lead."""
    data = Rows(60, bad=(41, 43))
    changes = {
        "learning_rate": 3e-2,
        "num_train_epochs": 1,
        "per_device_train_batch_size": 4 // accumulated,
        "train_sampling_strategy": "sequential",
    }
    callback = AttributionCallback(tmp_path / "record")
    made = train(tmp_path / "out", callback, data, gradient_accumulation_steps=accumulated, **changes)
    record = read_training_record(tmp_path / "record")
    for step in record.steps:
        assert len(step.row_losses) == len(step.rows) == len(step.tokens)
        assert set(step.tokens) == {LENGTH - 1}
        assert np.mean(step.row_losses) == pytest.approx(step.loss, rel=1e-3, abs=2e-4)
    worst = record.jumps()[0]
    (step,) = (one for one in record.steps if one.last == worst.last)
    assert set(worst.rows[:2]) == {41, 43}
    assert min(worst.row_losses[:2]) > max(worst.row_losses[2:])
    assert sum(worst.shares) == pytest.approx(1)
    assert sum(worst.shares[:2]) > 0.8
    assert dict(zip(step.rows, step.row_losses, strict=True)) == dict(zip(worst.rows, worst.row_losses, strict=True))
    told = f"{worst.rows[0]} ({worst.row_losses[0]:.3f}, {100 * worst.shares[0]:.0f} %)"
    assert told in capsys.readouterr().err
    assert not made.model._forward_hooks
    print_record(record)
    assert told in capsys.readouterr().out


def test_rows_whose_losses_are_not_asked_for_or_not_told_are_recorded_alone(tmp_path: Path) -> None:
    train(tmp_path / "out", AttributionCallback(tmp_path / "record", row_losses=False), max_steps=2)
    assert all(step.rows and not step.row_losses for step in read_training_record(tmp_path / "record").steps)
    passes = RowLosses()
    network = tiny_network(vocab_size=64).train()
    network.register_forward_hook(passes, with_kwargs=True)
    ids = torch.tensor([[1, 5, 3, 9], [1, 6, 3, 9]])
    for _ in range(2):  # two passes for one batch, as preference trainers make
        network(input_ids=ids, labels=ids)
    passes.end_batch(2)
    network(input_ids=ids)
    passes.end_batch(2)
    with torch.no_grad():
        network(input_ids=ids, labels=ids)
    network(input_ids=ids, labels=torch.where(ids == 5, IGNORED, ids))
    passes.end_batch(2)
    *unknown, first, second = passes.take()
    assert unknown == [(None, 0)] * 4
    assert (first.tokens, second.tokens) == (2, 3)
    assert first.loss is not None


@pytest.mark.parametrize("shifted", [True, False])
def test_losses_of_rows_are_those_of_the_definition(shifted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback, "_PIECE", 22)  # of two tokens
    draw = np.random.default_rng(0)
    logits, labels = draw.normal(size=(3, 6, 11)), draw.integers(0, 11, (3, 6))
    labels[0, :3] = labels[2] = IGNORED
    sums, counts = callback.summed_losses(torch.tensor(logits), torch.tensor(labels), shifted=shifted)
    for row in range(3):
        expected = [
            np.log(np.exp(logits[row, place - shifted]).sum()) - logits[row, place - shifted, labels[row, place]]
            for place in range(int(shifted), 6)
            if labels[row, place] != IGNORED
        ]
        assert counts[row] == len(expected)
        assert float(sums[row]) == pytest.approx(sum(expected), rel=1e-5)


def test_checkpoints_are_saved_as_gradient_methods_read_them(tmp_path: Path) -> None:
    callback = AttributionCallback(tmp_path / "record", checkpoints=3)
    made = train(tmp_path / "out", callback, logging_steps=100)
    found = trainer_checkpoints(tmp_path / "out")
    last = made.state.max_steps
    assert [each.path.name for each in found] == [f"checkpoint-{round(part * last / 3)}" for part in (1, 2, 3)]
    assert all(each.rate > 0 for each in found)


def test_a_stream_has_losses_and_no_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "out", AttributionCallback(tmp_path / "record"), Stream(), max_steps=4)
    record = read_training_record(tmp_path / "record")
    assert [step.rows for step in record.steps] == [()] * 4
    assert "the training data are a stream" in capsys.readouterr().err


def test_errors_come_when_training_begins(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="checkpoints is -1"):
        AttributionCallback(tmp_path, checkpoints=-1)
    with pytest.raises(ConfigError, match=r"save_total_limit is 1, .* raise it to 3"):
        train(tmp_path / "out", AttributionCallback(tmp_path / "r", checkpoints=3), save_total_limit=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"file: the record cannot be written"):
        train(tmp_path / "out", AttributionCallback(tmp_path / "file"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_text("")
    with pytest.raises(ConfigError, match="other: is not empty"):
        train(tmp_path / "out", AttributionCallback(tmp_path / "other"))


def test_another_training_does_not_replace_a_record_unasked(tmp_path: Path) -> None:
    callback = AttributionCallback(tmp_path / "record")
    made = train(tmp_path / "out", callback, max_steps=3)
    before = read_training_record(tmp_path / "record").steps
    with pytest.raises(ConfigError, match="record: is not empty"):
        made.train()
    assert read_training_record(tmp_path / "record").steps == before
    callback.replace = True
    made.train()
    assert len(read_training_record(tmp_path / "record").steps) == 3


def test_rows_of_several_processes_are_put_together(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"format": 1}')
    for rank, rows in enumerate(([1, 2], [3, 4])):
        entry = {"first": 1, "last": 1, "loss": 2.0, "learning_rate": None, "rows": rows}
        (tmp_path / f"steps-{rank}.jsonl").write_text(json.dumps(entry) + "\n")
    assert read_training_record(tmp_path).steps[0].rows == (1, 2, 3, 4)


@pytest.mark.parametrize("content", [b"{\n", b"[1]\n", b'{"first": 1}\n'])
def test_a_damaged_record_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ArtifactError, match="holds no record of a training"):
        read_training_record(tmp_path)
    (tmp_path / "record.json").write_text("{}")
    (tmp_path / "steps-0.jsonl").write_bytes(content)
    with pytest.raises(ArtifactError, match="the record .* cannot be read"):
        read_training_record(tmp_path)


def test_a_loss_that_is_no_number_is_a_jump(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("{}")
    losses = [1.0, 1.1, 0.9, 1.0, 1.05, float("nan"), 1.0, 9.0]
    entries = [
        {"first": at, "last": at, "loss": loss, "learning_rate": 1, "rows": [at]} for at, loss in enumerate(losses, 1)
    ]
    (tmp_path / "steps-0.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    record = read_training_record(tmp_path)
    assert [jump.rows for jump in record.jumps()] == [(6,), (8,)]
    assert len(record.to_dicts()) == 8
    with pytest.raises(ConfigError, match="deviations=0 .*must be above 0"):
        record.jumps(deviations=0)


class Breaks(AttributionCallback):
    """Breaks a weight after the eighth step, as an overflow does."""

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step == 8:
            model.get_output_embeddings().weight.data[5, 5] = torch.inf


@pytest.mark.parametrize("row_losses", [True, False])
def test_a_loss_that_the_trainer_logs_as_0_since_it_is_no_number_is_a_jump(tmp_path: Path, row_losses: bool) -> None:
    made = train(tmp_path / "out", Breaks(tmp_path / "record", row_losses=row_losses))
    assert [line["loss"] for line in made.state.log_history if line.get("step", 0) > 8 and "loss" in line] == [0.0] * 4
    record = read_training_record(tmp_path / "record")
    assert [np.isnan(step.loss) for step in record.steps] == [False] * 8 + [True] * 4
    assert [jump.last for jump in record.jumps()] == [9, 10, 11, 12]


def test_recorded_batches_are_the_ones_inside() -> None:
    inside = torch.utils.data.BatchSampler(range(5), 2, drop_last=False)
    recorded = RecordedBatches(inside)
    assert (len(recorded), recorded.batch_size, list(recorded)) == (3, 2, [[0, 1], [2, 3], [4]])
    assert [recorded.next_rows() for _ in range(4)] == [[0, 1], [2, 3], [4], []]


def test_rows_are_those_of_the_data_where_some_were_dropped_and_shuffled(tmp_path: Path, capsys: Any) -> None:
    """trl drops rows whose answer does not fit; the numbers of the others must not move."""
    data = datasets.Dataset.from_list([{name: list(value) for name, value in Rows(12)[n].items()} for n in range(12)])
    data = data.map(lambda row: {"labels": row["labels"]}).filter(lambda row: int(row["input_ids"][1]) % 3 != 0)
    trainer = train(tmp_path, AttributionCallback(tmp_path / "record"), data.shuffle(seed=3))
    record = read_training_record(tmp_path / "record")
    assert {step.last: sorted(step.rows) for step in record.steps} == {
        step: sorted(rows) for step, rows in trainer.seen.items()
    }
    assert record.about["examples"] == 12
    assert "the trainer left out 4 of 12 rows" in capsys.readouterr().err
