"""Encoder training from start to finish: the folder, resuming, a planted world, bad input."""

import errno
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds.small_world import tree
from worlds.tiny_bert import tiny_folder
from worlds.training_world import Interruption, interrupt_at, planted, tiny_settings, without_times

from airrep.attributors.methods import make_attributor
from airrep.encoder.cards import Prompts, read_card, write_prompts
from airrep.encoder.load import load_encoder
from airrep.errors import ArtifactError, ConfigError, DataError, TrainingError
from airrep.evaluation.judging import held_out_lds, score_instance
from airrep.labels.labels import LabelledInstance
from airrep.runtime.artifacts import check_digests, locked, make_partial, read_manifest
from airrep.scoring.groups import Groups
from airrep.training.result import WORK
from airrep.training.settings import TrainingSettings
from airrep.training.state import STATE
from airrep.training.train import train_encoder

LEARN = [planted(1, "a"), planted(2, "b")]
UNSEEN = planted(3, "h")


@pytest.fixture
def settings(tmp_path: Path) -> TrainingSettings:
    """Twelve steps, a checkpoint and an evaluation every four."""
    return tiny_settings(tmp_path)


def records(folder: Path) -> list[dict[str, Any]]:
    """Lines of ``steps.jsonl``."""
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode])
def test_gradients_that_are_off_are_switched_on(switch: Any, settings: TrainingSettings, tmp_path: Path) -> None:
    train_encoder(LEARN, [UNSEEN], tmp_path / "one", settings)
    with switch():
        train_encoder(LEARN, [UNSEEN], tmp_path / "other", settings)
    assert (tmp_path / "one/model.safetensors").read_bytes() == (tmp_path / "other/model.safetensors").read_bytes()


def test_a_finished_run_is_an_encoder_with_a_card_of_its_training(tmp_path: Path, settings: TrainingSettings) -> None:
    out = tmp_path / "encoder"
    result = train_encoder(LEARN, [UNSEEN], out, settings, test=[planted(4, "t")], lineage={"lm": "a tiny model"})
    encoder = load_encoder(out)
    assert encoder.trained_for_attribution
    assert encoder.trained_group_sizes == (20, 20)
    assert result.training["lm"] == "a tiny model"
    assert [instance["name"] for instance in result.training["instances"]] == ["a", "b"]
    assert set(result.training["results"]) == {"held_out", "test"}
    card = (out / "README.md").read_text()
    assert "a tiny model" in card
    assert f"{100 * result.training['results']['test']['trained']['lds']:.1f}" in card
    assert str(tmp_path) not in card
    assert not (out / "work").exists()
    check_digests(out, read_manifest(out, "encoder")["files"])


def test_the_card_s_held_out_lds_is_that_of_the_folder_s_encoder(tmp_path: Path, settings: TrainingSettings) -> None:
    result = train_encoder(LEARN, [UNSEEN], tmp_path / "encoder", settings)
    encoder = load_encoder(tmp_path / "encoder", precision="float32", device="cpu")
    found = held_out_lds([score_instance(encoder, UNSEEN, "attention")], [UNSEEN], resamples=40)
    assert result.held_out_lds == pytest.approx(found.value, abs=2e-3)
    assert result.interval == pytest.approx(tuple(found.interval), abs=5e-3)
    best = max(record["held_out_lds"] for record in records(result.path) if "held_out_lds" in record)
    assert result.held_out_lds == pytest.approx(best, abs=1e-12)


def test_steps_are_logged_with_what_they_saw_and_times_apart(tmp_path: Path, settings: TrainingSettings) -> None:
    result = train_encoder(LEARN, [UNSEEN], tmp_path / "encoder", settings)
    steps = [record for record in records(result.path) if "loss" in record]
    assert [record["step"] for record in steps] == list(range(1, 13))
    assert {record["instance"] for record in steps} == {"a", "b"}
    assert all(record["queries"] == 16 and record["subsets"] == 10 for record in steps)
    assert [record["step"] for record in records(result.path) if "held_out_lds" in record] == [0, 4, 8, 12]
    times = (result.path / "times.jsonl").read_text().splitlines()
    assert len(times) == len(records(result.path))


@pytest.mark.parametrize("layers", ["all", pytest.param(1, marks=pytest.mark.slow), 0])
def test_a_run_that_was_stopped_anywhere_ends_in_the_bytes_of_an_undisturbed_one(tmp_path: Path, layers: Any) -> None:
    settings = tiny_settings(tmp_path, train_layers=layers, steps=9, dropout=0.1, learning_rate=1e-2)
    undisturbed = train_encoder(LEARN, [UNSEEN], tmp_path / "undisturbed", settings)
    for step in (0, 1, 4, 6, 9):
        with pytest.raises(Interruption):
            train_encoder(LEARN, [UNSEEN], tmp_path / "stopped", settings, progress=interrupt_at(step))
    assert not (tmp_path / "stopped").exists()
    train_encoder(LEARN, [UNSEEN], tmp_path / "stopped", settings)
    assert without_times(tmp_path / "stopped") == without_times(undisturbed.path)


@pytest.mark.parametrize("at", ["manifest.json", pytest.param("README.md", marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_while_finishing_is_finished_by_the_next(
    tmp_path: Path, settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    undisturbed = train_encoder(LEARN, [UNSEEN], tmp_path / "undisturbed", settings)

    def stop(*_: object, **__: object) -> None:
        raise Interruption

    names = {"manifest.json": "runtime.stage.publish", "README.md": "training.result.render_card"}
    with monkeypatch.context() as patched, pytest.raises(Interruption):
        patched.setattr(f"airrep.{names[at]}", stop)
        train_encoder(LEARN, [UNSEEN], tmp_path / "stopped", settings)
    train_encoder(LEARN, [UNSEEN], tmp_path / "stopped", settings)
    assert without_times(tmp_path / "stopped") == without_times(undisturbed.path)


@pytest.mark.parametrize("other", [False, True])
def test_a_sealed_run_that_lost_a_part_of_its_work_is_finished_by_the_next(
    tmp_path: Path, settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch, other: bool
) -> None:
    undisturbed = train_encoder(LEARN, [UNSEEN], tmp_path / "undisturbed", settings)
    partial, test = tmp_path / "stopped.partial", [planted(9, "other", m=12)] if other else []

    def stop(folder: Path) -> None:
        (folder / WORK / STATE).unlink()
        raise Interruption

    with monkeypatch.context() as patched, pytest.raises(Interruption):
        patched.setattr("airrep.training.result.remove_work", stop)
        train_encoder(LEARN, [UNSEEN], tmp_path / "stopped", settings)
    assert (partial / WORK).is_dir()
    steps: list[object] = []
    found = train_encoder(LEARN, [UNSEEN], tmp_path / "stopped", settings, test=test, progress=steps.append)
    assert bool(steps) == other  # what is scored at the end is another, so the seal does not hold
    assert ("other" in str(found.training["results"])) == other
    assert other or without_times(tmp_path / "stopped") == without_times(undisturbed.path)


def test_a_finished_run_is_returned_as_it_is_and_another_is_refused(tmp_path: Path, settings: TrainingSettings) -> None:
    out = tmp_path / "encoder"
    train_encoder(LEARN, [UNSEEN], out, settings)
    before = tree(out)
    called: list[object] = []
    again = train_encoder(LEARN, [UNSEEN], out, settings, progress=called.append)
    assert again.path == out
    assert not called
    assert tree(out) == before
    other = settings.model_copy(update={"seed": 1})
    with pytest.raises(ArtifactError, match=r"trained with another settings\.seed \(was 0, now 1\)"):
        train_encoder(LEARN, [UNSEEN], out, other)
    with pytest.raises(ArtifactError, match="another held_out"):
        train_encoder(LEARN, [], out, settings)
    assert tree(out) == before
    train_encoder(LEARN, [UNSEEN], out, other, replace=True)
    assert tree(out) != before


def test_an_unfinished_run_of_other_settings_is_kept_or_replaced(tmp_path: Path, settings: TrainingSettings) -> None:
    out = tmp_path / "encoder"
    with pytest.raises(Interruption):
        train_encoder(LEARN, [UNSEEN], out, settings, progress=interrupt_at(5))
    other = settings.model_copy(update={"seed": 1})
    with pytest.raises(ArtifactError, match=r"unfinished training with other data or settings.*--replace"):
        train_encoder(LEARN, [UNSEEN], out, other)
    assert train_encoder(LEARN, [UNSEEN], out, other, replace=True).path == out


def test_how_it_runs_and_is_scored_may_change_when_a_run_goes_on(tmp_path: Path, settings: TrainingSettings) -> None:
    out, last, other = tmp_path / "encoder", planted(8, "last", m=12), planted(9, "other", m=12)
    with pytest.raises(Interruption):
        train_encoder(LEARN, [UNSEEN], out, settings, test=[last], progress=interrupt_at(5))
    steps: list[int] = []
    changed = settings.model_copy(update={"chunk_tokens": 64, "memory_budget": 1e-9, "checkpoint_every": 3})
    train_encoder(LEARN, [UNSEEN], out, changed, test=[other], progress=lambda record: steps.append(record["step"]))
    assert min(steps) > 1


@pytest.mark.parametrize("loss", [math.nan, 1.0])
def test_what_cannot_judge_is_refused_before_training(tmp_path: Path, settings: TrainingSettings, loss: float) -> None:
    last = planted(8, "last", m=12)
    bad = replace(last, losses=np.full_like(last.losses, loss))
    for held_out, test in (([bad], []), ([UNSEEN], [bad])):
        with pytest.raises(DataError, match="instance 'last': "):
            train_encoder(LEARN, held_out, tmp_path / "encoder", settings, test=test)
    assert not list(tmp_path.glob("encoder*"))


@pytest.mark.parametrize("pool", ["attention", "signed-attention"])
def test_an_encoder_that_no_step_made_better_is_not_called_trained(tmp_path: Path, pool: str) -> None:
    """But its scores were scaled for the pool, which it keeps."""
    rates = {"learning_rate": 1e-12, "head_learning_rate": 1e-12}
    settings = tiny_settings(tmp_path, steps=4, evaluate_every=1, pool=pool, **rates)
    result = train_encoder(LEARN, [UNSEEN], tmp_path / "encoder", settings)
    assert result.best_step == 0
    card = read_card(result.path)
    assert (card.trained_for_attribution, card.trained_group_sizes, card.trained_pool) == (False, None, pool)
    assert make_attributor("airrep", {"encoder": str(result.path)}).own_pool == pool
    assert "No step of the training was better" in (result.path / "README.md").read_text()


def test_a_draw_in_which_no_pair_counts_changes_nothing(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, steps=6, queries_per_step=1, subsets_per_step=2, t_min=4.9, weight_decay=1.0)
    told: list[Mapping[str, Any]] = []
    result = train_encoder(LEARN, [], tmp_path / "encoder", settings, progress=told.append)
    assert [record["loss"] for record in told if "loss" in record] == [None] * 6
    assert load_encoder(result.path).encode_texts(["a b"]).shape == (1, 16)


def test_training_stops_when_held_out_lds_no_longer_rises(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, steps=40, evaluate_every=1, patience=2, learning_rate=1e-7)
    result = train_encoder(LEARN, [UNSEEN], tmp_path / "encoder", settings)
    assert result.training["steps"] == result.best_step + 2 < 40


def test_training_ends_when_its_time_is_over(tmp_path: Path, settings: TrainingSettings) -> None:
    result = train_encoder(LEARN, [UNSEEN], tmp_path / "encoder", settings, seconds=0.0)
    assert result.training["steps"] == 1
    assert [line["step"] for line in records(result.path) if "held_out_lds" in line] == [0, 1]
    again = train_encoder(LEARN, [UNSEEN], tmp_path / "encoder", settings)
    assert again.training["steps"] == 1
    whole = train_encoder(LEARN, [UNSEEN], tmp_path / "whole", settings, seconds=1e6)
    assert whole.training["steps"] == 12


def test_without_held_out_instances_the_last_step_is_taken(tmp_path: Path, settings: TrainingSettings) -> None:
    result = train_encoder(LEARN, [], tmp_path / "encoder", settings)
    assert result.best_step == 12
    assert result.held_out_lds is None
    assert "not evaluated" in (result.path / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["attention", "mean"])
def test_a_planted_world_is_learnt_from_nothing(tmp_path: Path, pool: str) -> None:
    learn = [planted(seed, name, m=120, size=12, q=60) for seed, name in ((1, "a"), (2, "b"))]
    unseen, last = planted(3, "h", m=60, size=12), planted(4, "t", m=60, size=12)
    settings = tiny_settings(
        tmp_path, pool=pool, steps=120, learning_rate=5e-3, head_dropout=0.0, queries_per_step=60,
        subsets_per_step=32, evaluate_every=10, chunk_tokens=4096, initial_scale=10.0,
    )  # fmt: skip
    found = train_encoder(learn, [unseen], tmp_path / "encoder", settings, test=[last]).training["results"]["test"]
    assert abs(found["start"]["lds"]) < 0.2
    assert found["trained"]["lds"] > 0.5
    assert found["gain"]["interval"][0] > 0.4


@pytest.mark.slow
def test_sentence_transformers_loads_a_trained_encoder_alike(tmp_path: Path, settings: TrainingSettings) -> None:
    from sentence_transformers import SentenceTransformer

    train_encoder(LEARN, [UNSEEN], tmp_path / "encoder", settings)
    encoder = load_encoder(tmp_path / "encoder", precision="float32", device="cpu")
    texts = [encoder.render(example) for example in UNSEEN.queries]
    theirs = SentenceTransformer(str(tmp_path / "encoder"), device="cpu").encode(texts)
    np.testing.assert_allclose(encoder.encode_texts(texts), theirs, atol=2e-5)


@pytest.mark.parametrize(
    ("heads", "changes", "expected"),
    [
        ((), {"normalise": None}, ["Linear"]),
        ((), {"normalise": True}, ["UnitLength", "Linear"]),
        ((None, (16, 16, True)), {"normalise": None, "dimension": 5}, ["UnitLength", "Linear"]),
        ((None, (16, 16, False)), {"normalise": False}, ["Linear"]),
        (((16, 16, True), None), {"normalise": None}, ["Linear", "UnitLength", "Linear"]),
    ],
)
def test_the_head_is_as_settings_ask(tmp_path: Path, heads: Any, changes: dict[str, Any], expected: list[str]) -> None:
    tiny_folder(tmp_path / "other", heads)
    settings = tiny_settings(tmp_path, start=str(tmp_path / "other"), steps=1, train_layers=0, **changes)
    result = train_encoder(LEARN, [], tmp_path / "encoder", settings)
    trained = load_encoder(result.path)
    assert [type(head).__name__.strip("_") for head in trained.checkpoint.model.heads] == expected
    assert trained.dimension == changes.get("dimension", 16)


def test_bfloat16_trains_to_nearly_the_same_weights(tmp_path: Path) -> None:
    found = {}
    for precision in ("float32", "bfloat16"):
        settings = tiny_settings(tmp_path, precision=precision, steps=3, initial_scale=4.0)
        result = train_encoder(LEARN, [], tmp_path / precision, settings)
        found[precision] = [record["loss"] for record in records(result.path)]
    assert found["bfloat16"] == pytest.approx(found["float32"], rel=0.1)


def changed(instance: LabelledInstance, losses: np.ndarray) -> LabelledInstance:
    """The same instance with other losses."""
    return replace(instance, losses=losses.astype(np.float32))


def test_losses_that_teach_nothing_are_named_errors(tmp_path: Path, settings: TrainingSettings) -> None:
    shape = LEARN[0].losses.shape
    one_left = np.full(shape, np.nan)
    one_left[:, 3] = 1
    for losses, message in (
        (np.full(shape, np.nan), r"instance a .*: losses: all are missing"),
        (np.full(shape, 2.5), r"instance a.*: labels .*: no query's loss varies"),
        (one_left, r"instance a .*: losses: fewer than two subsets have losses"),
        (np.full(shape, np.inf), r"instance a .*: losses: a loss is infinite"),
    ):
        with pytest.raises(TrainingError, match=message):
            train_encoder([changed(LEARN[0], losses)], [], tmp_path / "encoder", settings)
    with pytest.raises(TrainingError, match=r"instance a .*: the labels .* differ by at most \d.* t_min=50"):
        train_encoder([LEARN[0]], [], tmp_path / "encoder", tiny_settings(tmp_path, t_min=50, t_max=50))
    assert not (tmp_path / "encoder").exists()
    single = Groups.from_lists({"0": [1, 2]})
    with pytest.raises(TrainingError, match="instance a .*: has only 1 subset"):
        train_encoder(
            [replace(LEARN[0], subsets=single, losses=LEARN[0].losses[:, :1])], [], tmp_path / "encoder", settings
        )


def test_missing_losses_and_flat_queries_are_left_out_and_the_rest_is_learnt(tmp_path: Path) -> None:
    losses = LEARN[0].losses.copy()
    losses[:, :5] = np.nan
    losses[3, 7], losses[6] = np.nan, 1.25
    settings = tiny_settings(tmp_path, queries_per_step=1000, subsets_per_step=1000, steps=2)
    result = train_encoder([changed(LEARN[0], losses)], [], tmp_path / "encoder", settings)
    assert [(record["queries"], record["subsets"]) for record in records(result.path)] == [(39, 35)] * 2
    assert all(math.isfinite(record["loss"]) for record in records(result.path))


def test_a_loss_that_explodes_names_its_step(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, initial_scale=1e7)
    with pytest.raises(TrainingError, match=r"step 1, instance [ab] .*scores are not finite"):
        train_encoder(LEARN, [], tmp_path / "encoder", settings)


def test_careless_calls_are_refused(tmp_path: Path, settings: TrainingSettings) -> None:
    out = tmp_path / "encoder"
    with pytest.raises(ConfigError, match="training: no labels"):
        train_encoder([], [], out, settings)
    with pytest.raises(ConfigError, match="instance 'a' is given twice"):
        train_encoder([LEARN[0], LEARN[0]], [], out, settings)
    with pytest.raises(DataError, match="held-out labels .*, instance copy: example 'a-t0'"):
        train_encoder(LEARN, [replace(LEARN[0], name="copy")], out, settings)
    with pytest.raises(DataError, match="held-out labels .*, instance copy: example 'h-t0'"):
        train_encoder(LEARN, [UNSEEN], out, settings, test=[replace(UNSEEN, name="copy")])
    with pytest.raises(ConfigError, match=r"train_layers=3: .* has 2 layers\. Choose 0 to 2, or all"):
        train_encoder(LEARN, [], out, settings.model_copy(update={"train_layers": 3}))


def test_two_runs_in_one_folder_are_refused(tmp_path: Path, settings: TrainingSettings) -> None:
    with locked(make_partial(tmp_path / "encoder")):
        with pytest.raises(ArtifactError, match="another process is writing there"):
            train_encoder(LEARN, [], tmp_path / "encoder", settings)


def test_a_full_disk_is_a_named_error_and_the_next_run_goes_on(
    tmp_path: Path, settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = train_encoder(LEARN, [UNSEEN], tmp_path / "undisturbed", settings)
    replace = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if "checkpoint" in Path(target).name and (self.parent.parent / "steps.jsonl").stat().st_size > 1500:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    with monkeypatch.context() as patched, pytest.raises(ArtifactError, match="the disk is full"):
        patched.setattr(Path, "replace", refuse)
        train_encoder(LEARN, [UNSEEN], tmp_path / "full", settings)
    train_encoder(LEARN, [UNSEEN], tmp_path / "full", settings)
    assert without_times(tmp_path / "full") == without_times(undisturbed.path)


def test_a_damaged_checkpoint_is_an_error_that_says_what_to_do(tmp_path: Path, settings: TrainingSettings) -> None:
    out = tmp_path / "encoder"
    with pytest.raises(Interruption):
        train_encoder(LEARN, [UNSEEN], out, settings, progress=interrupt_at(6))
    stored = tmp_path / "encoder.partial" / "work" / "checkpoint.safetensors"
    stored.write_bytes(stored.read_bytes()[:-100])
    with pytest.raises(ArtifactError, match=r"checkpoint.safetensors: is damaged.*\.partial.* start again"):
        train_encoder(LEARN, [UNSEEN], out, settings)


@pytest.mark.parametrize(("given", "taken"), [("2", 2), (0, 0), ("all", "all")])
def test_layers_are_a_number_or_all(given: object, taken: object) -> None:
    assert TrainingSettings.of({"train_layers": given}).train_layers == taken


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *(
            ({"train_layers": one}, "train_layers=.*layers to train must be 0, 1, 2 ... or 'all'")
            for one in ("some", "-1", -1, 1.5, True)
        ),
        ({"betas": (0.9, 1.0)}, r"betas=\(0\.9, 1\.0\): both numbers must be at least 0 and less than 1"),
        ({"betas": (float("nan"), 0.9)}, r"betas=\(nan, 0\.9\): both numbers must"),
        ({"t_min": 2, "t_max": 1}, r"t_min=2\.0 is greater than t_max=1\.0"),
        *(
            ({name: value}, name)
            for name, value in (("steps", 0), ("initial_scale", -1.0), ("pool", "sum"), ("clip", 0))
        ),
    ],
)
def test_settings_that_cannot_hold_are_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^settings: {message}[^\n]*\.$"):
        TrainingSettings.of(given)


def test_an_encoder_keeps_the_prompts_that_it_was_trained_behind(tmp_path: Path) -> None:
    start = tiny_folder(tmp_path / "start", ((16, 16, True),))
    write_prompts(start, Prompts("q : ", "a : "))
    result = train_encoder(LEARN, [UNSEEN], tmp_path / "encoder", tiny_settings(tmp_path))
    encoder = load_encoder(result.path, precision="float32", device="cpu")
    assert encoder.prompts == Prompts("q : ", "a : ")
    found = held_out_lds([score_instance(encoder, UNSEEN, "attention")], [UNSEEN], resamples=40)
    assert result.held_out_lds == pytest.approx(found.value, abs=2e-3)


def test_what_each_chunk_drops_is_part_of_the_request(tmp_path: Path) -> None:
    train_encoder(LEARN, [], tmp_path / "dropping", tiny_settings(tmp_path, dropout=0.2))
    with pytest.raises(ArtifactError, match="chunk_tokens"):
        train_encoder(LEARN, [], tmp_path / "dropping", tiny_settings(tmp_path, dropout=0.2, chunk_tokens=256))
    first = train_encoder(LEARN, [], tmp_path / "plain", tiny_settings(tmp_path))
    again = train_encoder(LEARN, [], tmp_path / "plain", tiny_settings(tmp_path, chunk_tokens=256))
    assert again.training == first.training


def test_names_on_the_card_are_no_markup(tmp_path: Path) -> None:
    odd = replace(LEARN[0], name="x | y\n# z <script>`")
    result = train_encoder([odd], [], tmp_path / "encoder", tiny_settings(tmp_path))
    assert "| x \\| y # z &lt;script>' | 120 |" in (result.path / "README.md").read_text()
