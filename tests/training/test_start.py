"""The start's head and its temperature; a static start."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from worlds.tiny_bert import WORDS, tiny_checkpoint, tiny_model, tiny_tokenizer
from worlds.training_world import Interruption, interrupt_at, planted, tiny_settings, without_times

from airrep.encoder.cards import Card
from airrep.encoder.load import load_encoder
from airrep.encoder.networks.packed import PackedEncoder, SentenceBag, network_of
from airrep.encoder.static import StaticEncoder
from airrep.errors import ConfigError
from airrep.evaluation.judging import held_out_lds, score_instance
from airrep.evaluation.statistics.metrics import lds
from airrep.runtime.devices import Team
from airrep.training.examples import Collector
from airrep.training.settings import TrainingSettings
from airrep.training.start import begin, load_trainable, scale_scores, with_trainable_head
from airrep.training.train import train_encoder
from airrep.training.trunk import Trunk, score_prepared


def test_an_encoder_that_does_not_run_packed_cannot_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.training.start.load_encoder", lambda *_, **__: object())
    with pytest.raises(ConfigError, match="encoder other: cannot be trained, .* BERT-type encoder with mean pooling"):
        load_trainable("other")


def test_scores_are_multiplied_by_the_factor() -> None:
    model = tiny_model(((16, 16, True),)).double()
    means = torch.randn(4, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    before = model.project(means)
    scale_scores(model, 9.0)
    torch.testing.assert_close(model.project(means) @ model.project(means).T, 9 * before @ before.T)


@pytest.mark.parametrize("factor", [1 / 64, 1.0, 64.0])
def test_the_scale_is_the_best_on_the_training_labels_whatever_the_start_s(tmp_path: Path, factor: float) -> None:
    checkpoint = tiny_checkpoint((None, (16, 16, True)))
    collector = Collector(PackedEncoder("tiny", checkpoint, "float32", "cpu", 512))
    taught = collector.prepare_taught(planted(5, "a"), "std")
    scale_scores(checkpoint.model, factor)
    trunk = Trunk(checkpoint.model, collector.texts(), Team(), "float32", 512)

    def at(scale: float) -> float:
        scale_scores(checkpoint.model, scale)
        value = lds(score_prepared(trunk, taught, "attention"), taught.losses, resamples=0).value
        scale_scores(checkpoint.model, 1 / scale)
        return value

    def begun(**changes: object) -> float:
        return begin(trunk, [taught], tiny_settings(tmp_path, initial_scale="auto", **changes)).scale

    chosen = begun()
    assert at(chosen) >= max(at(1.0), at(chosen * 2), at(chosen / 2)) - 1e-6
    assert begun(pool="mean") == 1  # no factor changes its ranks


def test_a_head_keeps_the_start_s_features(tmp_path: Path) -> None:
    start = tiny_model(((16, 16, True),))
    means = torch.randn(3, 16)
    kept = with_trainable_head(start, tiny_settings(tmp_path, normalise=None))
    torch.testing.assert_close(kept.project(means), start.project(means))
    assert kept.heads[0].weight is not start.heads[0].weight


def test_a_random_projection_nearly_keeps_inner_products(tmp_path: Path) -> None:
    start = tiny_model(((16, 16, False),))
    means = torch.randn(30, 16, generator=torch.Generator().manual_seed(0))
    wide = with_trainable_head(start, tiny_settings(tmp_path, normalise=None, dimension=20_000)).project(means)
    plain = start.project(means)
    np.testing.assert_allclose((wide @ wide.T).detach(), (plain @ plain.T).detach(), rtol=0.1, atol=1.0)


LEARN = [planted(1, "a"), planted(2, "b")]
UNSEEN = planted(3, "h")
VIEW = Card(template="{response}")


def start(normalise: bool) -> StaticEncoder:
    """Random vectors of letters."""
    matrix = np.random.default_rng(0).standard_normal((len(WORDS), 16)).astype(np.float32) / 4
    return StaticEncoder.of("start", matrix, tiny_tokenizer(), VIEW, normalise=normalise)


def settings_of(folder: Path, normalise: bool, **changes: object) -> TrainingSettings:
    """Some steps from it."""
    if not (folder / "static").exists():
        start(normalise).save(folder / "static")
    own = {"start": str(folder / "static"), "normalise": None, "learning_rate": 0.05, "head_dropout": 0.0, "steps": 24}
    return tiny_settings(folder, **(own | changes))


@pytest.mark.parametrize("normalise", [True, False])
def test_it_learns_and_its_folder_scores_as_training_did(normalise: bool, tmp_path: Path) -> None:
    result = train_encoder(LEARN, [UNSEEN], tmp_path / "trained", settings_of(tmp_path, normalise))
    lines = [json.loads(line) for line in (result.path / "steps.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert np.mean(losses[-6:]) < 0.8 * np.mean(losses[:6])
    found = result.training["results"]["held_out"]
    assert found["trained"]["lds"] > found["start"]["lds"] + 0.1
    encoder = load_encoder(result.path)
    assert isinstance(encoder, StaticEncoder)
    assert (encoder.trained_for_attribution, encoder.trained_pool) == (True, "attention")
    lds = held_out_lds([score_instance(encoder, UNSEEN, "attention")], [UNSEEN], resamples=40)
    assert result.held_out_lds == pytest.approx(lds.value, abs=2e-3)
    kinds = {folder.name.partition("_")[2] for folder in result.path.iterdir() if folder.is_dir()}
    assert kinds == ({"Normalize", "Dense"} if normalise else set())
    texts = [encoder.render(example) for example in UNSEEN.train]
    library = encoder.sentence_transformer().encode(texts, show_progress_bar=False)
    np.testing.assert_allclose(encoder.encode_texts(texts), library, atol=1e-5)


@pytest.mark.parametrize("normalise", [True, False])
def test_the_network_makes_the_encoder_s_features(normalise: bool) -> None:
    encoder = start(normalise)
    texts = ["a b c", "z", "q q q w", "question : a"]
    network = network_of(encoder)
    assert isinstance(network, SentenceBag)
    ids = encoder.token_ids(texts)
    means = network.means(torch.from_numpy(np.concatenate(ids)), torch.tensor([len(one) for one in ids]))
    found = network.project(means).detach().numpy()
    np.testing.assert_allclose(found, encoder.encode_texts(texts), atol=1e-6)


def test_an_interrupted_run_ends_in_the_same_bytes(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, True, pull_to_start=True, weight_decay=0.1, head_dropout=0.1)
    whole = train_encoder(LEARN, [UNSEEN], tmp_path / "whole", settings)
    with pytest.raises(Interruption):
        train_encoder(LEARN, [UNSEEN], tmp_path / "parts", settings, progress=interrupt_at(7))
    parts = train_encoder(LEARN, [UNSEEN], tmp_path / "parts", settings)
    assert without_times(parts.path) == without_times(whole.path)


def test_a_strong_pull_holds_the_vectors_at_the_start_and_train_layers_0_leaves_them(tmp_path: Path) -> None:
    old = start(True).checkpoint.matrix

    def moved(**changes: object) -> float:
        out = tmp_path / f"moved-{len(list(tmp_path.iterdir()))}"
        trained = load_encoder(train_encoder(LEARN, [], out, settings_of(tmp_path, True, **changes)).path)
        assert isinstance(trained, StaticEncoder)
        return float(np.abs(trained.checkpoint.matrix - old).max())

    free, pulled = moved(), moved(pull_to_start=True, weight_decay=15.0)
    assert pulled < free / 2
    assert free > 0.01
    assert moved(train_layers=0) == 0


@pytest.mark.parametrize(("name", "value"), [("train_layers", 1), ("dropout", 0.1)])
def test_settings_of_layers_are_refused_before_anything_is_written(name: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{name}={value}: the encoder to start from.* has (0|no) layers"):
        train_encoder(LEARN, [], tmp_path / "out", settings_of(tmp_path, True, **{name: value}))
    assert {path.name for path in tmp_path.iterdir()} <= {"static", "start"}


def test_the_bundled_one_is_named_static(tmp_path: Path) -> None:
    trained = train_encoder(LEARN, [], tmp_path / "out", {"start": "static", "steps": 1, "device": "cpu"})
    assert trained.training["start"]["name"] == "static"
    assert isinstance(load_encoder(trained.path), StaticEncoder)


@pytest.mark.parametrize("normalise", [True, False])
def test_a_projection_changes_the_number_of_features(normalise: bool, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, normalise, dimension=12, steps=2)
    assert load_encoder(train_encoder(LEARN, [], tmp_path / "out", settings).path).dimension == 12
