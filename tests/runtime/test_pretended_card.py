"""Every stage on a pretended CUDA device: no tensor is left on the CPU, and results are those of the CPU."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds.pretend_card import pretended_card
from worlds.tiny_bert import TEXTS, tiny_folder
from worlds.tiny_lms import some_examples, tiny_lm
from worlds.training_world import planted, tiny_settings

import airrep
from airrep.attributors.base import Attributor
from airrep.attributors.direct import DirectAttributor
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.encoder.load import load_encoder
from airrep.labels.farm import label
from airrep.labels.plan import SamplingSettings
from airrep.labels.sampling import sample
from airrep.lm.model import load_lm
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import warm_up
from airrep.training.train import train_encoder

HERE, CARD = {"device": "cpu", "precision": "float32"}, {"device": "cuda", "precision": "float32"}
TRAIN = Corpus.from_examples(Example(f"why {each.prompt}", each.response, each.id) for each in some_examples(12))
QUERIES = Corpus.from_examples(Example(f"so {each.prompt}", each.response, f"q{each.id}") for each in some_examples(5))


@pytest.fixture
def card() -> Iterator[None]:
    """Torch says that there is a CUDA device."""
    with pretended_card():
        yield


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny LM with grouped queries."""
    return tiny_lm(tmp_path_factory.mktemp("lm"), max_position_embeddings=256)


@pytest.mark.usefixtures("card")
def test_the_card_is_one_that_finds_faults() -> None:
    there = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        there + torch.ones(3)
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        there.numpy()
    weight = torch.nn.Parameter(torch.ones(3, device="cuda"))
    seen: list[torch.Tensor] = []
    outputs = weight * 2
    outputs.register_hook(lambda gradient: seen.append(gradient + torch.ones(3, device="cuda")))
    torch.autograd.backward(outputs.sum())
    assert seen[0].device.type == weight.grad.device.type == "cuda"  # type: ignore[union-attr]
    assert there.cpu().numpy().tolist() == [1, 1, 1]


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_encoder_encodes_as_on_the_cpu(tmp_path: Path, precision: Any) -> None:
    tiny_folder(tmp_path / "bert")
    here, there = (load_encoder(tmp_path / "bert", precision=precision, device=at) for at in ("cpu", "cuda"))
    np.testing.assert_allclose(there.encode_texts(TEXTS), here.encode_texts(TEXTS), atol=1e-5)


@pytest.mark.usefixtures("card")
def test_an_lm_is_fine_tuned_asked_and_reset_as_on_the_cpu(lm: str) -> None:
    here, there = (load_lm(LmSettings.of({"lm": lm, **at})) for at in (HERE, CARD))
    documents = here.tokenise(list(TRAIN))
    before = here.losses(documents)
    for one in (here, there):
        np.testing.assert_allclose(one.losses(documents), before, atol=1e-5)
        one.fine_tune(documents, FineTuneSettings(learning_rate=1e-2, batch_examples=5), 1)
    np.testing.assert_allclose(there.losses(documents), here.losses(documents), atol=1e-4)
    np.testing.assert_allclose(there.hidden_states(documents, 1), here.hidden_states(documents, 1), atol=1e-4)
    assert len(there.generate(list(QUERIES), 3)) == len(QUERIES)
    there.reset()
    np.testing.assert_allclose(there.losses(documents), before, atol=1e-5)


@pytest.mark.usefixtures("card")
def test_bfloat16_is_what_auto_takes_on_a_card_that_has_it(lm: str) -> None:
    there = load_lm(LmSettings.of({"lm": lm, "device": "cuda"}))
    assert there.execution.precision == "bfloat16"
    documents = there.tokenise(list(TRAIN))
    report = there.fine_tune(documents, FineTuneSettings(learning_rate=1e-2, batch_examples=5), 1)
    assert report.loss_per_step[-1] < report.loss_per_step[0]


METHODS: dict[str, dict[str, Any]] = {
    "tracin": {"rank": 2},
    "logra": {"rank": 2, "modules": ["all-linear"]},
    "trak": {"rank": 1},
    "influence": {"solver": "cg", "damping": 100.0, "modules": ["*0.mlp.down_proj"]},
    "ekfac": {"query_rank": 2},
    "ekfac whole": {"unit": True},
    "rds": {},
}


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("method", METHODS)
def test_methods_score_as_on_the_cpu(lm: str, method: str) -> None:
    settings = METHODS[method] | ({} if method == "rds" else {"store": "none"})
    here, there = (make_attributor(method.split()[0], {"lm": lm, **settings, **at}) for at in (HERE, CARD))
    wanted, found = (_scores(one) for one in (here, there))
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3 * float(np.abs(wanted).max()))


def _scores(method: Attributor) -> np.ndarray:
    method.fit(TRAIN)
    if isinstance(method, DirectAttributor):
        return method.score(list(TRAIN), list(QUERIES))
    train, queries = method.encode_train(list(TRAIN)), method.encode_queries(list(QUERIES))
    assert isinstance(train, np.ndarray)
    assert isinstance(queries, np.ndarray)
    scores: np.ndarray = train @ queries.T
    return scores


@pytest.mark.usefixtures("card")
def test_adapters_are_trained_and_read_as_on_the_cpu(lm: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    tuning = FineTuneSettings(learning_rate=1e-2, batch_examples=5, lora_rank=2)
    warm = warm_up(TRAIN, tmp_path / "warm", LmSettings.of({"lm": lm, **CARD}), tuning, checkpoints=2)
    settings = {"lm": str(warm.path), "dimension": 64, "store": "none"}
    found = [_scores(make_attributor("less", {**settings, **at})) for at in (HERE, CARD)]
    np.testing.assert_allclose(found[1], found[0], atol=1e-3)


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("layers", ["all", 1, 0])
def test_an_encoder_is_trained_as_on_the_cpu(tmp_path: Path, layers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.training.train.RESAMPLES", 40)
    lds = []
    for device in ("cpu", "cuda"):
        settings = tiny_settings(tmp_path, train_layers=layers, device=device, steps=4)
        result = train_encoder([planted(1, "a")], [planted(3, "h")], tmp_path / device, settings)
        lds.append(result.held_out_lds)
    assert lds[1] == pytest.approx(lds[0], abs=2e-3)


@pytest.mark.usefixtures("card")
def test_labels_and_an_index_are_made_as_on_the_cpu(lm: str, tmp_path: Path) -> None:
    chosen = SamplingSettings(instances=1, train_count=None, query_count=4, subsets=3, size=4)
    plan = sample(TRAIN, tmp_path / "plan", chosen, QUERIES)
    tuning, losses, tops = FineTuneSettings(learning_rate=1e-2), [], []
    for name, at in (("here", HERE), ("there", CARD)):
        made = label(plan, TRAIN, QUERIES, LmSettings.of({"lm": lm, **at}), tuning, tmp_path / f"labels-{name}")
        losses.append(made.losses(0))
        index = airrep.build_index(
            TRAIN, tmp_path / name, "logra", settings={"lm": lm, "rank": 2, "store": "none", **at}
        )
        tops.append(index.group_scores(QUERIES, by="id").scores)
    np.testing.assert_allclose(losses[1], losses[0], atol=1e-4)
    np.testing.assert_allclose(tops[1], tops[0], atol=2e-2)
