"""One step's gradient: the same however it is computed, and that of the plain definition."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor
from worlds.tiny_bert import tiny_checkpoint
from worlds.training_world import planted, tiny_settings

from airrep.encoder.networks.bert import PackedTokens, SentenceBert
from airrep.encoder.networks.packed import PackedEncoder
from airrep.runtime.devices import Team
from airrep.runtime.packing import pack
from airrep.training.examples import Batches, Collector, StepDraw, TaughtInstance, Texts
from airrep.training.ranking_loss import ranking_loss
from airrep.training.settings import TrainingSettings
from airrep.training.step import Dropout, StepTexts, add_gradients
from airrep.training.trunk import Activations, Frozen, Trunk

HEADS = (None, (16, 8, True))


class World(SimpleNamespace):
    """A model, an instance and what one step draws from it."""

    model: SentenceBert
    texts: Texts
    taught: TaughtInstance
    draw: StepDraw
    settings: TrainingSettings

    def gradients(self, trunk: Trunk, **changes: object) -> dict[str, Tensor]:
        """Gradients of one step by name."""
        for parameter in trunk.model.parameters():
            parameter.grad = None
        add_gradients(trunk, self.taught, self.draw, self.settings.model_copy(update=changes), step=3)
        return {name: weight.grad.clone() for name, weight in trunk.learning() if weight.grad is not None}

    def trunk(self, chunk_tokens: int = 200) -> Trunk:
        """All layers learn."""
        return Trunk(self.model, self.texts, Team(), "float32", chunk_tokens)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Eight queries and six subsets of a planted instance, in float64."""
    checkpoint = tiny_checkpoint(HEADS)
    collector = Collector(PackedEncoder("tiny", checkpoint, "float32", "cpu", 100))
    taught = collector.prepare_taught(planted(0, "a", n=40, q=12, m=9, size=7), "std")
    with torch.no_grad():
        checkpoint.model.heads[-1].weight.mul_(3)
    draw = Batches([taught.usable_queries], [taught.usable_subsets], 8, 6, 0).draw(0)
    settings = tiny_settings(tmp_path, head_dropout=0.0)
    return World(model=checkpoint.model.double(), texts=collector.texts(), taught=taught, draw=draw, settings=settings)


def encode_one(world: World, row: int) -> Tensor:
    """Features of one text by itself, with a graph."""
    batch = next(iter(pack(world.texts.lengths[row : row + 1], 1)))
    return world.model(PackedTokens.from_batch(batch, [world.texts[row]]))[0]


def plain_loss(world: World) -> Tensor:
    """The loss of the step by its definition: every subset encodes its own members, example by example."""
    queries = [encode_one(world, int(world.taught.queries[q])) for q in world.draw.queries]
    columns = []
    for j in world.draw.subsets:
        members = world.taught.train[world.taught.subsets.members(int(j))]
        features = torch.stack([encode_one(world, int(row)) for row in members])
        scores = torch.stack(queries) @ features.T
        columns.append((torch.softmax(scores.abs(), dim=1) * scores).sum(dim=1))
    labels = torch.from_numpy(world.taught.labels[np.ix_(world.draw.queries, world.draw.subsets)]).double()
    return ranking_loss(torch.stack(columns, dim=1), labels)


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float = 1e-9) -> None:
    """Gradients agree, relative to the longest of them."""
    assert one.keys() == other.keys()
    longest = max(float(gradient.norm()) for gradient in other.values())
    assert longest > 0
    for name in one:
        assert float((one[name] - other[name]).norm()) <= tolerance * longest, name


def test_gradient_is_that_of_encoding_every_subset_by_itself(world: World) -> None:
    found = world.gradients(world.trunk(), memory_budget=1e-9)
    for parameter in world.model.parameters():
        parameter.grad = None
    plain_loss(world).backward()
    expected = {name: weight.grad for name, weight in world.model.named_parameters() if weight.grad is not None}
    assert_same(found, {name: expected[name] for name in found})
    assert set(expected) == set(found)


def test_gradient_cache_and_a_single_graph_agree(world: World) -> None:
    assert_same(
        world.gradients(world.trunk(), memory_budget=1e-9), world.gradients(world.trunk(), memory_budget=1e6), 1e-13
    )


def test_chunks_do_not_change_the_gradient(world: World) -> None:
    assert_same(world.gradients(world.trunk(1), memory_budget=1e-9), world.gradients(world.trunk(10_000)), 1e-12)


def test_a_loss_is_the_definition_s(world: World) -> None:
    loss, texts = add_gradients(world.trunk(), world.taught, world.draw, world.settings, step=0)
    assert loss == pytest.approx(float(plain_loss(world).detach()), rel=1e-9)
    assert len(np.unique(texts.rows)) == len(texts.rows)


def test_both_passes_of_the_cache_drop_the_same_values(world: World) -> None:
    dropped = {"dropout": 0.3, "head_dropout": 0.2}
    cached = world.gradients(world.trunk(), memory_budget=1e-9, **dropped)
    assert_same(cached, world.gradients(world.trunk(), memory_budget=1e6, **dropped), 1e-12)
    plain = world.gradients(world.trunk())
    assert float((cached["heads.1.weight"] - plain["heads.1.weight"]).norm()) > 0


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    drop = Dropout(0.25, seed=1, step=2, device="cpu").of("head")
    assert drop is not None
    values = drop(torch.ones(200, 200))
    assert float((values == 0).double().mean()) == pytest.approx(0.25, abs=0.01)
    assert float(values.mean()) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("top", [0, 1, 2])
def test_stored_activations_give_the_top_layers_the_whole_s_gradient(world: World, tmp_path: Path, top: int) -> None:
    world.model.float()
    expected = world.gradients(world.trunk())
    frozen = Frozen(world.model, world.texts, 2 - top, "float32", "float32", 300, Team())
    trunk = replace(world.trunk(), depth=2 - top, stored=Activations(tmp_path / "activations", frozen))
    found = world.gradients(trunk)
    layers = {name.split(".")[1] for name in found if name.startswith("layers.")}
    assert layers == {str(number) for number in range(2 - top, 2)}
    # In float32, and in other batches: the loss divides by deviations of scores, far smaller than these.
    assert_same(found, {name: expected[name] for name in found}, 1e-4)


def test_texts_of_a_step_are_each_encoded_once(world: World) -> None:
    texts = StepTexts.of(world.taught, world.draw)
    for place, j in enumerate(world.draw.subsets):
        members = world.taught.train[world.taught.subsets.members(int(j))]
        np.testing.assert_array_equal(texts.rows[texts.subsets[place]], members)
    np.testing.assert_array_equal(texts.rows[texts.queries], world.taught.queries[world.draw.queries])
