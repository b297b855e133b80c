"""Training beside channels: gradients, weights, resuming, bad input."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds.halves_world import BLIND, KNOWING, halves
from worlds.small_world import tree
from worlds.tiny_bert import tiny_checkpoint
from worlds.training_world import Interruption, interrupt_at, tiny_settings, without_times

from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.views import View, seen
from airrep.encoder.networks.packed import PackedEncoder
from airrep.errors import ConfigError, DataError, TrainingError
from airrep.evaluation.judging import held_out_lds, score_instance
from airrep.runtime.devices import Team
from airrep.training.examples import Batches, Collector
from airrep.training.linear.weights import LOG_WEIGHTS, GivenChannels, Mixture, fit_ranking
from airrep.training.ranking_loss import ranking_loss
from airrep.training.settings import TrainingSettings
from airrep.training.step import add_gradients
from airrep.training.train import train_encoder
from airrep.training.trunk import Trunk, features_of

LEARN, UNSEEN, LAST = [halves(1, "a"), halves(2, "b")], halves(3, "h"), halves(4, "t", m=60)
CHANNELS = (KNOWING, BLIND)


@pytest.fixture
def settings(tmp_path: Path) -> TrainingSettings:
    """Twelve steps on what responses say."""
    return tiny_settings(tmp_path, view="response")


def test_the_gradient_beside_given_scores_is_that_of_the_plain_sum(settings: TrainingSettings) -> None:
    checkpoint = tiny_checkpoint((None, (16, 8, True)))
    collector = Collector(PackedEncoder("tiny", checkpoint, "float32", "cpu", 100), "response")
    instance = halves(0, "a", n=40, q=12, m=9, size=7)
    given = np.random.default_rng(0).standard_normal((2, 12, 9))
    taught = replace(collector.prepare_taught(instance, "std"), given=given.astype(np.float32))
    mixture = Mixture([0.7, 0.2, 1.4]).double()
    trunk = Trunk(checkpoint.model.double(), collector.texts(), Team(), "float32", 200, beside=mixture)
    draw = Batches([taught.usable_queries], [taught.usable_subsets], 8, 6, 0).draw(0)
    chosen = settings.model_copy(update={"head_dropout": 0.0})

    loss, _ = add_gradients(trunk, taught, draw, chosen, 0)
    found = {name: weight.grad.clone() for name, weight in trunk.learning() if weight.grad is not None}

    for _, weight in trunk.learning():
        weight.grad = None
    rows = np.arange(len(trunk.texts))
    features = trunk.model.project(torch.stack([trunk.means(rows, part)[0] for part in one_by_one(trunk)]))
    scores = features[taught.queries[draw.queries]] @ features[taught.train.clip(0)].T
    columns = []
    for j in draw.subsets:
        own = scores[:, taught.subsets.members(int(j))]
        columns.append((torch.softmax(own.abs(), dim=1) * own).sum(dim=1))
    weights = mixture.log_weights.exp()
    offset = torch.from_numpy(taught.given[:, draw.queries][:, :, draw.subsets]).double()
    f = weights[2] * torch.stack(columns, dim=1) + weights[0] * offset[0] + weights[1] * offset[1]
    expected = ranking_loss(f, torch.from_numpy(taught.labels[np.ix_(draw.queries, draw.subsets)]).double())
    expected.backward()
    assert loss == pytest.approx(float(expected.detach()), rel=1e-9)
    assert LOG_WEIGHTS in found
    longest = max(float(gradient.norm()) for gradient in found.values())
    for name, weight in trunk.learning():
        assert weight.grad is not None
        assert float((found[name] - weight.grad).norm()) <= 1e-9 * longest, name


def one_by_one(trunk: Trunk) -> list[Any]:
    """Each text as a chunk of its own."""
    from airrep.runtime.packing import Batch

    return [Batch(np.array([row]), trunk.texts.lengths[[row]]) for row in range(len(trunk.texts))]


def test_weights_are_the_best_of_the_convex_loss() -> None:
    generator = np.random.default_rng(0)
    columns = generator.standard_normal((3, 30, 20))
    labels = 2 * columns[0] + 0.5 * columns[1] - columns[2] + generator.standard_normal((30, 20))
    labels = ((labels - labels.mean(1, keepdims=True)) / labels.std(1, keepdims=True)).astype(np.float32)
    labels[3, :5] = np.nan
    weights = fit_ranking([columns], [labels], [(1e-3, 30.0)] * 3)
    assert weights[0] > 3 * weights[1] > 0
    assert weights[2] == 1e-3  # a channel that is wrong is held at the least

    def loss(tried: np.ndarray) -> float:
        f = torch.from_numpy(np.tensordot(tried, columns, axes=1))
        return float(ranking_loss(f, torch.from_numpy(labels)))

    for step in 0.02 * np.eye(3)[:2]:
        assert loss(weights) <= min(loss(weights + step), loss(weights - step))
    with pytest.raises(DataError, match="labels: no query has two .* t_min=9"):
        fit_ranking([columns], [labels], [(1e-3, 30.0)] * 3, t_min=9.0, t_max=9.0)


def test_given_scores_have_deviation_1_and_are_those_of_the_channels() -> None:
    given = GivenChannels.of(CHANNELS, LEARN)
    variances = np.concatenate([one.astype(np.float64).var(axis=2) for one in given.learnt], axis=1)
    np.testing.assert_allclose(variances.mean(axis=1), 1, rtol=1e-5)
    alone = score_instance(make_attributor("ngram", {"orders": [1]}), UNSEEN)
    np.testing.assert_allclose(given.score(UNSEEN)[0] * given.deviations[0, 0], alone, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of training in a world of halves, beside channels and alone; and the training beside them."""
    folder = tmp_path_factory.mktemp("learnt")
    learn = [halves(seed, name, m=100, q=60) for seed, name in ((1, "a"), (2, "b"))]
    settings = tiny_settings(
        folder, view="response", steps=160, learning_rate=5e-3, head_dropout=0.0, queries_per_step=60,
        subsets_per_step=32, evaluate_every=20, chunk_tokens=4096, initial_scale=10.0,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("airrep.training.train.RESAMPLES", 100)
        beside = train_encoder(learn, [UNSEEN], folder / "beside", settings, test=[LAST], beside=CHANNELS)
        alone = train_encoder(learn, [UNSEEN], folder / "alone", settings, test=[LAST])
    return {"beside": beside.training, "alone": alone.training}


@pytest.mark.slow
def test_the_sum_knows_what_neither_channels_nor_the_encoder_know(learnt: dict[str, Any]) -> None:
    found, encoder = (learnt[name]["results"]["test"] for name in ("beside", "alone"))
    channel = held_out_lds([score_instance(make_attributor(KNOWING.method, KNOWING.settings), LAST)], [LAST], 100)
    for other in (encoder["trained"]["lds"], channel.value, found["start"]["lds"]):
        assert found["trained"]["lds"] > other + 0.1


@pytest.mark.parametrize("layers", ["all", 0])
def test_a_run_that_was_stopped_anywhere_ends_in_the_bytes_of_an_undisturbed_one(tmp_path: Path, layers: Any) -> None:
    settings = tiny_settings(tmp_path, train_layers=layers, steps=9, view="response", learning_rate=1e-2)
    undisturbed = train_encoder(LEARN, [UNSEEN], tmp_path / "undisturbed", settings, beside=CHANNELS)
    for step in (0, 1, 6, 9):
        with pytest.raises(Interruption):
            train_encoder(LEARN, [UNSEEN], tmp_path / "stopped", settings, beside=CHANNELS, progress=interrupt_at(step))
    train_encoder(LEARN, [UNSEEN], tmp_path / "stopped", settings, beside=CHANNELS)
    assert without_times(tmp_path / "stopped") == without_times(undisturbed.path)


def test_other_channels_are_another_run_and_a_finished_one_stays(tmp_path: Path, settings: TrainingSettings) -> None:
    out = tmp_path / "encoder"
    train_encoder(LEARN, [], out, settings, beside=CHANNELS)
    before = tree(out)
    reweighed = [one.model_copy(update={"weight": 3.0}) for one in CHANNELS]  # where the fit begins from is no input
    train_encoder(LEARN, [], out, settings, beside=reweighed)
    assert tree(out) == before
    for other in ((), CHANNELS[:1]):
        with pytest.raises(OSError, match="trained with another beside"):
            train_encoder(LEARN, [], out, settings, beside=other)


@pytest.mark.parametrize("view", ["response", "prompt"])
def test_texts_of_a_view_are_those_that_an_index_encodes(view: View) -> None:
    checkpoint = tiny_checkpoint((None, (16, 8, True)))
    encoder, instance = PackedEncoder("tiny", checkpoint, "float32", "cpu", 100), halves(0, "a", n=20, q=6, m=5, size=4)
    collector = Collector(encoder, view)
    prepared = collector.prepare(instance)
    trunk = Trunk(checkpoint.model, collector.texts(), Team(), "float32", 200)
    expected = encoder.encode([seen(one, view) for one in instance.queries])
    np.testing.assert_allclose(features_of(trunk, prepared.queries), expected, atol=1e-5)


def test_channels_that_cannot_be_are_refused_in_one_line(tmp_path: Path, settings: TrainingSettings) -> None:
    out = tmp_path / "encoder"
    with pytest.raises(ConfigError, match="two channels .*'responses'"):
        train_encoder(LEARN, [], out, settings, beside=(KNOWING, KNOWING))
    silent = [replace(one, queries=silenced(one.queries)) for one in LEARN]
    with pytest.raises(DataError, match=r"'responses': gives all subsets the same score"):
        train_encoder(silent, [], out, settings, beside=(KNOWING,))
    flat = replace(LEARN[0], losses=np.ones_like(LEARN[0].losses))
    with pytest.raises(TrainingError, match="instance a.*: labels .*: no query's loss varies"):
        train_encoder([flat], [], out, settings, beside=(KNOWING,))
    assert not list(tmp_path.glob("encoder*"))


def silenced(queries: Corpus) -> Corpus:
    """Queries that share no word with any other text."""
    return Corpus.from_examples(Example(one.prompt, f"unheard{row}", one.id) for row, one in enumerate(queries))


def test_steps_and_card_tell_of_both(tmp_path: Path, settings: TrainingSettings) -> None:
    result = train_encoder(LEARN, [UNSEEN], tmp_path / "encoder", settings, beside=CHANNELS)
    lines = [json.loads(line) for line in (result.path / "steps.jsonl").read_text().splitlines()]
    best = max(line["held_out_lds"] for line in lines if "held_out_lds" in line)
    assert result.training["results"]["held_out"]["trained"]["lds"] == pytest.approx(best, abs=1e-9)
    assert result.training["beside"] == ["responses", "prompts"]
    card = (result.path / "README.md").read_text()
    assert "It reads the response of an example alone" in card
    assert "beside other channels (responses, prompts)" in card
