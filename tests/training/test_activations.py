"""Stored activations: right, shared, mended where they are damaged."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from worlds.small_world import tree
from worlds.tiny_bert import TEXTS, tiny_checkpoint

import airrep.training.trunk as activations
from airrep.encoder.networks.bert import PackedTokens
from airrep.encoder.networks.packed import PackedEncoder
from airrep.encoder.tokens import TextTokenizer
from airrep.errors import TrainingError
from airrep.runtime.devices import Team
from airrep.runtime.packing import pack
from airrep.training.examples import Texts
from airrep.training.trunk import Activations, Frozen


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Frozen:
    """Eighteen texts in blocks of five, and the first of two layers."""
    monkeypatch.setattr(activations, "BLOCK", 5)
    checkpoint = tiny_checkpoint()
    sequences = TextTokenizer(checkpoint.tokenizer, 24, 40, "tiny")(
        [f"{text} {i % 7}" for i in range(3) for text in TEXTS]
    )
    texts = Texts(np.concatenate(sequences).astype(np.int32), np.cumsum([0, *map(len, sequences)]))
    return Frozen(checkpoint.model, texts, 1, "float32", "float32", 50, Team())


def features(frozen: Frozen) -> np.ndarray:
    """What the encoder makes of the texts, all at once."""
    found = np.empty((len(frozen.texts), frozen.model.dimension), np.float32)
    for batch in pack(frozen.texts.lengths, 10_000):
        with torch.no_grad():
            found[batch.rows] = frozen.model(PackedTokens.from_batch(batch, frozen.texts))
    return found


def test_the_layers_above_stored_hidden_states_give_the_encoder_s_features(frozen: Frozen, tmp_path: Path) -> None:
    stored = Activations(tmp_path, frozen)
    rows = np.array([17, 2, 9, 4, 11])
    batch = next(iter(pack(frozen.texts.lengths[rows], 10_000)))
    with torch.no_grad():
        means = frozen.model.means(stored.hidden(rows[batch.rows]), batch.runs, 1)
        found = frozen.model.project(means)
    np.testing.assert_allclose(found, features(frozen)[rows[batch.rows]], atol=2e-5)


def test_files_keep_no_descriptor(frozen: Frozen, tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    stored = Activations(tmp_path, frozen)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert len(stored.hidden(np.arange(18))) == len(frozen.texts.ids)


def test_the_heads_above_stored_means_give_the_encoder_s_features(frozen: Frozen, tmp_path: Path) -> None:
    stored = Activations(tmp_path, replace(frozen, depth=2))
    rows = np.array([17, 2, 9, 2, 11])
    with torch.no_grad():
        found = frozen.model.project(torch.from_numpy(stored.means(rows)))
    np.testing.assert_allclose(found, features(frozen)[rows], atol=2e-5)


def test_half_precision_is_close_and_takes_half_the_room(frozen: Frozen, tmp_path: Path) -> None:
    wide = Activations(tmp_path / "wide", frozen)
    small = Activations(tmp_path / "small", replace(frozen, storage="float16"))
    rows = np.arange(len(frozen.texts))
    np.testing.assert_allclose(small.hidden(rows), wide.hidden(rows), rtol=1e-3, atol=1e-3)
    sizes = [sum(map(len, tree(tmp_path / name).values())) for name in ("small", "wide")]
    assert sizes[0] < 0.65 * sizes[1]


def test_finished_blocks_are_not_computed_again_and_damaged_ones_are(
    frozen: Frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Activations(tmp_path, frozen)
    before = tree(tmp_path)
    computed: list[range] = []
    compute = Frozen.compute

    def counted(self: Frozen, texts: range) -> np.ndarray:
        computed.append(texts)
        return compute(self, texts)

    monkeypatch.setattr(Frozen, "compute", counted)
    Activations(tmp_path, frozen)
    assert computed == []
    damaged = tmp_path / frozen.names()[2]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    Activations(tmp_path, frozen)
    assert computed == [range(10, 15)]
    assert tree(tmp_path) == before


def test_other_layers_weights_or_texts_have_other_files(frozen: Frozen) -> None:
    other = PackedEncoder("other", tiny_checkpoint(seed=1), "float32", "cpu", 50).checkpoint.model
    fewer = Texts(frozen.texts.ids[: frozen.texts.offsets[4]], frozen.texts.offsets[:5])
    named = [
        tuple(one.names()[:1])
        for one in (
            frozen, replace(frozen, depth=2), replace(frozen, model=other), replace(frozen, texts=fewer),
            replace(frozen, storage="float16"), replace(frozen, precision="bfloat16"),
        )
    ]  # fmt: skip
    assert len(set(named)) == len(named)
    with torch.no_grad():
        frozen.model.layers[1].up.weight.mul_(2)
        frozen.model.heads[0].weight.mul_(2)
    assert tuple(frozen.names()[:1]) == named[0]


def test_activations_beyond_half_precision_are_a_named_error(frozen: Frozen, tmp_path: Path) -> None:
    with torch.no_grad():
        frozen.model.layers[0].down_norm.weight.mul_(1e6)
    with pytest.raises(TrainingError, match=r"activations below layer 1: .* in float16.*activations=float32"):
        Activations(tmp_path, replace(frozen, storage="float16"))
