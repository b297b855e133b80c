"""LESS: adapter gradients, corrected by Adam's moments on one side, projected."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import gradients as reference
from worlds.tiny_lms import some_examples, tiny_lm

from airrep.attributors.conformance import check_attributor
from airrep.attributors.gradient.curvature import unit
from airrep.attributors.gradient.projection import RandomProjection
from airrep.attributors.gradient.run import less as less_module
from airrep.attributors.gradient.run.less import AdamMoments, LessAttributor
from airrep.attributors.methods import make_attributor
from airrep.attributors.settings import LessSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, DataError
from airrep.lm.lora import file_name, load_moments
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import Warmup, warm_up

pytest.importorskip("peft")

LORA = FineTuneSettings(learning_rate=1e-2, batch_examples=5, lora_rank=2)
ON_CPU = {"precision": "float32", "device": "cpu"}


@pytest.fixture(scope="module")
def train() -> Corpus:
    """Short examples."""
    return Corpus.from_examples(Example(f"why {each.prompt}", each.response, each.id) for each in some_examples(12))


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def warmup(request: pytest.FixtureRequest, train: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Warmup:
    """A warm-up with adapters, made once."""
    folder = tmp_path_factory.mktemp("less")
    return _warm(folder, train, request.param, 2048)


def _warm(folder: Path, train: Corpus, kind: str, positions: int) -> Warmup:
    limit = {"n_positions": positions} if kind == "gpt2" else {"max_position_embeddings": positions}
    changes = {} if kind == "gpt2" else limit
    base = tiny_lm(folder / "lm", kind, **changes)
    return warm_up(train, folder / "warm", LmSettings(lm=base, **ON_CPU), LORA)


def less(warmup: Warmup, **changes: Any) -> LessAttributor:
    """LESS at a warm-up; nothing is kept."""
    values = {"lm": str(warmup.path), "dimension": 64, "store": "none", **ON_CPU, **changes}
    return LessAttributor(LessSettings.of(values))


def _reference(attributor: LessAttributor, warmup: Warmup, examples: Corpus) -> dict[str, np.ndarray]:
    """Adapter gradients of each example by itself in float64, from peft's own loading; by site."""
    from peft import PeftModel

    model = reference.load(warmup.base["name"])
    PeftModel.from_pretrained(model, warmup.adapter, is_trainable=True)
    model.double().eval()
    documents = attributor.lm.tokenise(examples)
    names = [site.name for site in attributor.sites]
    pairs = [(documents.sequence(row), int(documents.starts[row])) for row in range(len(documents))]
    return reference.example_gradients(model, pairs, names)


def _flat(attributor: LessAttributor, warmup: Warmup) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First and second moments of all numbers, and the projection as a matrix (d, p) of them."""
    assert warmup.adapter is not None
    moments = load_moments(warmup.adapter)
    pairs = [moments[file_name(f"{site.name}.weight")] for site in attributor.sites]
    sketch = RandomProjection(64, 0)
    parts = [
        sketch.of(site.name, torch.eye(site.width_in * site.width_out, dtype=torch.float64)).numpy()
        for site in attributor.sites
    ]
    first, second = (np.concatenate([pair[side].numpy().ravel() for pair in pairs]) for side in (0, 1))
    return first.astype(np.float64), second.astype(np.float64), np.concatenate(parts)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft asks transformers for it
def test_scores_are_those_of_the_reference(warmup: Warmup, train: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(less_module, "NUMBERS", 100)  # several documents at a time, not all
    attributor = less(warmup, batch_tokens=70)
    gradients = reference.flat(list(_reference(attributor, warmup, train).values()))
    first, second, projection = _flat(attributor, warmup)
    found = attributor.encode_queries(train) @ attributor.encode_train(train).T
    wanted = reference.less(gradients, gradients, first, second, projection.T)
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    assert np.abs(found - found.T).max() > 1e-2
    assert np.ptp(wanted) > 0.1


def test_the_method_keeps_all_promises_of_an_attributor(train: Corpus, tmp_path: Path) -> None:
    warmup = _warm(tmp_path, train, "llama", 2500)
    check_attributor(lambda: less(warmup, max_tokens=2400))


def test_sides_differ_and_both_have_length_one(warmup: Warmup, train: Corpus) -> None:
    attributor = less(warmup)
    left, right = attributor.encode_queries(train), attributor.encode_train(train)
    for rows in (left, right):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    assert np.abs(left - right).max() > 0.1


def test_corrections_move_by_the_moments_without_bias_correction() -> None:
    adam = AdamMoments(torch.tensor([1.0, 0.0, 2.0]), torch.tensor([4.0, 0.0, 1.0]), (0.9, 0.99), 1e-4)
    gradients = torch.tensor([[2.0, 0.0, -1.0], [0.0, 10.0, 0.0]])
    found = adam.corrected(gradients)
    moments = (adam.first.numpy(), adam.second.numpy())
    wanted = np.stack([reference.adam_corrected(row.numpy(), *moments, (0.9, 0.99), 1e-4) for row in gradients])
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)
    assert found[0, 1] == 0


def test_an_example_without_a_gradient_has_features_of_zero_on_both_sides(warmup: Warmup, train: Corpus) -> None:
    attributor = less(warmup)
    with torch.no_grad():
        head = attributor.lm.model.get_output_embeddings()
        head.weight.zero_()  # all logits are equal, so nothing below the head matters
    for rows in (attributor.encode_queries(train), attributor.encode_train(train)):
        np.testing.assert_array_equal(rows, np.zeros_like(rows))


def test_a_gradient_that_is_not_finite_gives_features_of_zero(warmup: Warmup, train: Corpus) -> None:
    attributor = less(warmup)
    with torch.no_grad():
        attributor.sites[0].module.weight.fill_(float("inf"))
    for rows in (attributor.encode_queries(train), attributor.encode_train(train)):
        np.testing.assert_array_equal(rows, np.zeros_like(rows))


def test_rows_are_found_in_the_store_of_their_side(
    warmup: Warmup, train: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = str(tmp_path / "store")
    left, right = (side(train) for side in _sides(less(warmup, store=store)))
    assert len(list((tmp_path / "store").iterdir())) == 2
    monkeypatch.setattr(LessAttributor, "_compute", None)
    again = [side(train) for side in _sides(less(warmup, store=store))]
    np.testing.assert_array_equal(again[0], left)
    np.testing.assert_array_equal(again[1], right)


def test_rows_are_scaled_some_at_a_time(warmup: Warmup, train: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [side(train) for side in _sides(less(warmup))]
    scaled: list[int] = []

    def counted(rows: np.ndarray, of: np.ndarray | None) -> np.ndarray:
        scaled.append(len(rows))
        return unit(rows, of)

    monkeypatch.setattr(less_module, "unit", counted)
    monkeypatch.setattr("airrep.attributors.gradient.store.CHUNK", 5)
    done: list[int] = []
    for wide, side in zip(wanted, _sides(less(warmup)), strict=True):
        found = side(train, done.append)
        np.testing.assert_allclose(found, wide, atol=1e-5)
        assert found.dtype == np.float32
    assert scaled == [5, 5, 2] * 2
    assert sum(done) == 2 * len(train)


def _sides(attributor: LessAttributor) -> tuple[Any, Any]:
    return attributor.encode_queries, attributor.encode_train


@pytest.mark.parametrize("change", [{"dimension": 32}, {"seed": 1}, {"max_tokens": 32}])
def test_settings_that_change_features_change_the_fingerprint(change: dict[str, Any], warmup: Warmup) -> None:
    assert less(warmup, **change).fingerprint != less(warmup).fingerprint
    assert less(warmup, batch_tokens=32).fingerprint == less(warmup).fingerprint


@pytest.mark.parametrize("tuning", [None, FineTuneSettings(batch_examples=5)])
def test_an_lm_without_moments_of_adapters_is_refused_with_what_to_run(
    tuning: FineTuneSettings | None, train: Corpus, tmp_path: Path
) -> None:
    lm = tiny_lm(tmp_path / "lm")
    if tuning is not None:
        lm = str(warm_up(train, tmp_path / "warm", LmSettings(lm=lm, **ON_CPU), tuning).path)
    attributor = make_attributor("less", {"lm": lm, "store": "none", **ON_CPU})
    told = r"^less: lm .* has no low-rank adapters with Adam's moments.*--set lora_rank=128"
    with pytest.raises(ConfigError, match=told):
        attributor.encode_train(train)


def test_a_base_that_has_moved_is_asked_for_and_another_one_refused(train: Corpus, tmp_path: Path) -> None:
    warmup = _warm(tmp_path, train, "llama", 64)
    before = less(warmup).fingerprint
    shutil.move(tmp_path / "lm", tmp_path / "moved")
    with pytest.raises(ConfigError, match=r"^less: .* which no longer exists\. Set its new folder: --set base=MODEL$"):
        less(warmup).encode_train(train)
    assert less(warmup, base=str(tmp_path / "moved")).fingerprint == before
    tiny_lm(tmp_path / "lm", seed=1)
    told = r"is not the LM that .* was fine-tuned from\. Name that LM: --set base=MODEL$"
    with pytest.raises(ConfigError, match=told):
        less(warmup).encode_train(train)


def test_examples_that_the_lm_cannot_read_are_counted_before_any_work(warmup: Warmup, train: Corpus) -> None:
    long = Corpus.from_examples([*train, Example("why", "x" * 5000, "long")])
    with pytest.raises(DataError, match=r'^less: the LM cannot read 1 of 13 examples\. .*"long"'):
        less(warmup).fit(long)


def test_recomputing_activations_is_refused(warmup: Warmup) -> None:
    with pytest.raises(ConfigError, match=r"^less: checkpointing=true saves no memory here\."):
        less(warmup, checkpointing=True)
