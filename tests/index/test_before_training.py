"""A new index reads the LM before training: adapters are left out, and what is recorded says so."""

from pathlib import Path

import numpy as np
import pytest
from worlds.commands import Run, done
from worlds.tiny_lms import some_examples, tiny_lm, write_adapters

from airrep.attributors.methods import before_training, channels_before_training, make_attributor
from airrep.attributors.recipes import ChannelsSettings
from airrep.corpus.corpus import Corpus
from airrep.errors import ArtifactError, ConfigError
from airrep.index.building import build_index
from airrep.index.index import Index

pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft asks for it
READING = {"device": "cpu", "precision": "float32"}
READOUT = READING


@pytest.fixture
def train() -> Corpus:
    return Corpus.from_examples(some_examples())


@pytest.fixture
def adapter(tmp_path: Path) -> str:
    write_adapters(tiny_lm(tmp_path / "base"), tmp_path / "adapter")
    return str(tmp_path / "adapter")


def scores(index: Index) -> np.ndarray:
    return np.array([[hit.score for hit in one] for one in index.top(some_examples(4), k=3)])


def test_an_index_of_adapters_is_that_of_their_base(tmp_path: Path, train: Corpus, adapter: str) -> None:
    of_base = build_index(train, tmp_path / "1", "rds", settings={**READOUT, "lm": str(tmp_path / "base")})
    named = build_index(train, tmp_path / "2", "rds", settings={**READOUT, "lm": adapter})
    made = build_index(train, tmp_path / "3", make_attributor("rds", {**READOUT, "lm": adapter}))
    merged = build_index(train, tmp_path / "4", "rds", settings={**READOUT, "lm": adapter, "merged": True})
    fingerprints = [one.manifest["attributor"] for one in (of_base, named, made, merged)]
    assert fingerprints[0] == fingerprints[1] == fingerprints[2] != fingerprints[3]
    assert named.manifest["settings"]["merged"] is False
    np.testing.assert_array_equal(scores(named), scores(of_base))
    assert not np.allclose(scores(merged), scores(of_base))
    np.testing.assert_array_equal(scores(Index(tmp_path / "2").made_with({"lm": f"{tmp_path}/base"})), scores(named))
    with pytest.raises(ArtifactError, match="was built with another model"):
        scores(Index(tmp_path / "2").made_with({"merged": True}))


def test_what_was_recorded_before_keeps_its_meaning(adapter: str) -> None:
    """An index of an earlier version says of adapters nothing more, and has them merged."""
    old, merged = (make_attributor("rds", {**READOUT, "lm": adapter, **more}) for more in ({}, {"merged": True}))
    assert old.fingerprint == merged.fingerprint
    assert "merged" not in old.settings.model_dump()


def test_all_channels_but_that_after_a_warm_up_read_the_lm_before(tmp_path: Path, adapter: str) -> None:
    after = tiny_lm(tmp_path / "after", seed=1)
    settings = ChannelsSettings.of({"lm": adapter, "warmed": after})
    found = before_training(make_attributor("channels", settings.model_dump(mode="json"))).settings
    assert isinstance(found, ChannelsSettings)
    read = {one.title: one.settings.get("merged") for one in found.channels if "lm" in one.settings}
    before = dict.fromkeys(("n-grams of tokens", "n-grams of words", "gradients"), False)
    assert read == {**before, "warmed gradients": None}
    assert found.merged is False
    assert channels_before_training(settings.channels) == found.channels


@pytest.mark.parametrize("moved", [False, True])
def test_adapters_alone_name_the_lm_before_and_after(tmp_path: Path, train: Corpus, adapter: str, moved: bool) -> None:
    base = tmp_path / "base"
    if moved:
        base = base.rename(tmp_path / "moved")
    reads = {**READING, "warmed": adapter}
    both = {**reads, "lm": adapter, **({"base": str(base)} if moved else {})}
    found = build_index(train, tmp_path / "1", settings=both)
    named = build_index(train, tmp_path / "2", settings={**reads, "lm": str(base)})
    np.testing.assert_array_equal(scores(found), scores(named))
    base.rename(tmp_path / "base")
    with pytest.raises(ConfigError, match="has the same weights as lm"):
        build_index(train, tmp_path / "3", settings={**reads, "lm": adapter, "merged": True})


@pytest.mark.parametrize(("method", "more"), [("influence", {}), ("tracin", {"checkpoints": "all"})])
def test_methods_of_an_lm_that_is_trained_take_it_as_it_is(method: str, more: dict[str, str], adapter: str) -> None:
    made = make_attributor(method, {"lm": adapter, **more})
    assert before_training(made) is made


def test_the_command_says_which_lm_was_read(tmp_path: Path, adapter: str, run: Run) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("".join(f'{{"prompt": "a", "response": "b {row}"}}\n' for row in range(9)))
    how = ("index", str(data), "--method", "rds", "--device", "cpu", "--out")
    found = done(run(*how, str(tmp_path / "1"), "--lm", adapter))
    assert f"built: 9 examples, method rds with the LM {tmp_path / 'base'}, without the adapters {adapter}" in found.err
    merged = run(*how, str(tmp_path / "2"), "--lm", adapter, "--set", "merged=true")
    assert "built: 9 examples, method rds;" in merged.err
    (tmp_path / "base" / "trainer_state.json").write_text("{}")
    refused = run(*how, str(tmp_path / "3"), "--lm", str(tmp_path / "base"))
    assert "a trainer left trainer_state.json in its folder" in refused.err
    assert run(*how, str(tmp_path / "3"), "--lm", str(tmp_path / "base"), "--set", "merged=true").status == 0


@pytest.mark.parametrize("gone", ["adapter", "base"])
def test_an_lm_that_is_gone_is_told_with_the_way_out(tmp_path: Path, train: Corpus, adapter: str, gone: str) -> None:
    settings = {**READING, "lm": adapter, "channels": "text"}
    built = build_index(train, tmp_path / "index", settings=settings)
    first = scores(built)
    (tmp_path / gone).rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="--set lm=FOLDER" if gone == "adapter" else "--set base=MODEL"):
        scores(Index(built.path))
    where = {"lm" if gone == "adapter" else "base": str(tmp_path / "elsewhere")}
    np.testing.assert_array_equal(scores(Index(built.path).made_with(where)), first)
