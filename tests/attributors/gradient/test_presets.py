"""Presets of LoGra and TracIn: what new indexes take, and what earlier ones keep."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.attributors.methods import attributor_of_new_index, make_attributor, method_named
from airrep.attributors.recipes import Channel, ChannelsSettings
from airrep.attributors.settings import LograSettings, TracinSettings
from airrep.attributors.sums.channels import ChannelsAttributor, channel_pooling
from airrep.errors import ArtifactError, ConfigError
from airrep.evaluation.lds import evaluate_lds
from airrep.evaluation.loo import evaluate_loo
from airrep.index import sealing
from airrep.index.sharing.joining import join_parts
from airrep.index.sharing.parts import build_part
from airrep.labels.instance import LabelledInstance
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling
from airrep.training.linear.recipe import _with_pooling

OWN = {"logra": ("diminishing", 1.0), "tracin": ("signed-attention", 0.3)}
"""Pool and temperature that were measured best."""
TRAIN, QUERIES = make_corpus(14), make_corpus(3, "q")


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm"))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "cache"))


def at(lm: str, **values: Any) -> dict[str, Any]:
    return {"lm": lm, "rank": 3, "device": "cpu", "precision": "float32", **values}


def settings_of(name: str, **values: Any) -> Any:
    return method_named(name).settings.of({"lm": "some/model", **values})


def chosen(settings: Any) -> tuple[Any, Any, float]:
    return settings.modules, settings.pool, settings.temperature


@pytest.mark.parametrize("name", OWN)
def test_a_preset_is_what_modules_pool_and_temperature_say(name: str) -> None:
    pool, temperature = OWN[name]
    plain, whole = (None, None, 1.0), (("all-linear",), pool, temperature)
    assert chosen(settings_of(name)) == plain
    assert settings_of(name, preset="paper") == settings_of(name)
    made = settings_of(name, preset="measured")
    own = {} if name == "tracin" else {"rank": 64, "sketch": 2**14, "exponent": 0.5, "sample": 300}
    assert (chosen(made), made.rank, made.preset) == (whole, own.get("rank", 8), None)
    assert settings_of(name, modules=["all-linear"], pool=pool, temperature=temperature, **own) == made


@pytest.mark.parametrize("name", OWN)
def test_what_is_given_counts_before_the_preset(name: str) -> None:
    pool, temperature = OWN[name]

    def measured(**values: Any) -> tuple[Any, Any, float]:
        return chosen(settings_of(name, preset="measured", **values))

    assert measured(modules=["*.mlp.*"]) == (("*.mlp.*",), pool, temperature)
    assert measured(modules=None) == (None, pool, temperature)
    assert measured(pool="sum") == (("all-linear",), "sum", 1.0)
    assert measured(pool="attention") == (("all-linear",), "attention", 1.0)
    if name == "tracin":
        assert measured(temperature=0.7) == (("all-linear",), pool, 0.7)
    else:
        with pytest.raises(ConfigError, match="temperature: belongs to attention; expected pool=attention or"):
            measured(temperature=0.7)
        assert measured(pool="attention", temperature=0.4) == (("all-linear",), "attention", 0.4), "as it was before"
    if name == "logra":
        samples = [settings_of(name, preset=preset).sample for preset in (None, "paper", "measured")]
        assert samples == [1000, 1000, 300]
        assert settings_of(name, preset="measured", sample=20, unit=False).sample == 20
        for plain in ({"rank": None}, {"projection": "random"}, {"curvature": "fisher"}):
            made = settings_of(name, preset="measured", **plain)
            assert (made.sketch, made.rank) == (None, None if "rank" in plain else 8), "what no sketch goes with"
    assert measured(unit=False) == (("all-linear",), None, 1.0), "lengths are kept: no temperature was measured"
    paper = settings_of(name, preset="paper", pool="attention", temperature=0.2, modules=["all-linear"])
    assert chosen(paper) == (("all-linear",), "attention", 0.2)


def test_scores_of_several_checkpoints_have_no_measured_temperature() -> None:
    assert chosen(settings_of("tracin", preset="measured", checkpoints="all")) == (("all-linear",), None, 1.0)


@pytest.mark.parametrize("name", OWN)
def test_bad_presets_pools_and_temperatures_are_told(name: str) -> None:
    with pytest.raises(ConfigError, match="preset='best': input should be 'measured' or 'paper'"):
        settings_of(name, preset="best")
    with pytest.raises(ConfigError, match="temperature: belongs to attention; expected pool=attention or"):
        settings_of(name, temperature=0.4)
    with pytest.raises(ConfigError, match="pool='order-5': input should be"):
        settings_of(name, pool="order-5")
    with pytest.raises(ConfigError, match="'preset' is not a setting here"):
        settings_of("trak", preset="paper")


@pytest.mark.parametrize(
    "settings", [LograSettings(lm="m"), TracinSettings(lm="m"), LograSettings(lm="m", preset="paper")]
)
def test_settings_of_the_paper_are_written_as_before_presets(settings: Any) -> None:
    written = settings.model_dump(mode="json")
    assert not {"preset", "pool", "temperature"} & set(written)
    assert written["modules"] is None


@pytest.mark.parametrize("name", OWN)
def test_settings_that_were_written_are_read_as_the_same(name: str) -> None:
    made = settings_of(name, preset="measured")
    written = json.loads(json.dumps(made.model_dump(mode="json")))
    assert (written["modules"], written["pool"], written.get("temperature", 1.0)) == (["all-linear"], *OWN[name])
    assert "preset" not in written
    assert settings_of(name, **written) == made


@pytest.mark.parametrize("name", OWN)
def test_new_indexes_take_what_was_measured_best(name: str, lm: str, tmp_path: Path) -> None:
    built = airrep.build_index(TRAIN, tmp_path / "new", name, settings=at(lm))
    pool, temperature = OWN[name]
    own = {} if name == "tracin" else {"sketch": 2**14, "exponent": 0.5}
    equal = make_attributor(name, at(lm, modules=["all-linear"], pool=pool, temperature=temperature, **own))
    equal.fit(TRAIN)
    assert built.manifest["attributor"] == equal.fingerprint
    opened = airrep.open_index(built.path)
    found = opened.group_scores(QUERIES, "label")
    told = temperature if name == "tracin" else None
    assert (found.provenance.pool, found.provenance.temperature) == (pool, told)
    named = opened.group_scores(QUERIES, "label", pool, temperature=temperature)
    np.testing.assert_array_equal(found.scores, named.scores)
    what = opened.what_if(QUERIES, remove='label == "label 0"')
    assert what.provenance.pooling == (pool if told is None else f"{pool} at temperature {temperature}")


@pytest.mark.parametrize("name", OWN)
def test_the_papers_preset_builds_what_was_built_before(name: str, lm: str, tmp_path: Path) -> None:
    built = airrep.build_index(TRAIN, tmp_path / "paper", name, settings=at(lm, preset="paper"))
    before = make_attributor(name, at(lm))
    before.fit(TRAIN)
    assert built.manifest["attributor"] == before.fingerprint
    assert built.manifest["settings"] == before.settings.model_dump(mode="json")
    again = airrep.build_index(TRAIN, tmp_path / "before", before)
    assert again.fingerprint == built.fingerprint
    assert airrep.build_index(TRAIN, tmp_path / "before", name, settings=at(lm, preset="paper")).fingerprint == (
        again.fingerprint
    ), "it was finished already"
    asked = built.group_scores(QUERIES, "label")
    assert (asked.provenance.pool, asked.provenance.temperature) == ("sum", None)
    np.testing.assert_array_equal(asked.scores, again.group_scores(QUERIES, "label", "sum").scores)


def test_a_pool_or_a_temperature_of_ones_own_counts_before_the_methods(lm: str) -> None:
    method = attributor_of_new_index("tracin", at(lm))
    assert str(method.pooling()) == "signed-attention at temperature 0.3"
    assert str(method.pooling(temperature=0.7)) == "signed-attention at temperature 0.7"
    assert str(method.pooling("signed-attention")) == "signed-attention"
    assert str(method.pooling("sum")) == "sum"
    assert str(method.pooling("attention", 0.4)) == "attention at temperature 0.4"
    assert str(method.pooling("order-1")) == "order-1"
    other = attributor_of_new_index("logra", at(lm))
    assert str(other.pooling()) == "diminishing"
    with pytest.raises(ConfigError, match="temperature 0.7: belongs to attention, not to diminishing pooling"):
        other.pooling(temperature=0.7)
    assert str(attributor_of_new_index("trak", at(lm)).pooling()) == "sum"


def test_indexes_that_differ_by_their_pool_are_two(lm: str, tmp_path: Path) -> None:
    first = airrep.build_index(TRAIN, tmp_path / "index", "tracin", settings=at(lm))
    with pytest.raises(ArtifactError, match="made with another attributor"):
        airrep.build_index(TRAIN, tmp_path / "index", "tracin", settings=at(lm, pool="sum"))
    other = airrep.build_index(TRAIN, tmp_path / "other", "tracin", settings=at(lm, pool="sum"))
    assert first.fingerprint != other.fingerprint, "an evaluation that is asked for again must see the difference"
    shutil.rmtree(tmp_path / "index")
    temperate = airrep.build_index(TRAIN, tmp_path / "index", "tracin", settings=at(lm, temperature=0.7))
    assert temperate.fingerprint not in (first.fingerprint, other.fingerprint)


def test_an_index_of_earlier_versions_is_not_taken_for_a_new_one(lm: str, tmp_path: Path) -> None:
    old = airrep.build_index(TRAIN, tmp_path / "index", make_attributor("tracin", at(lm)))
    hint = r"another attributor \(--set preset=paper gives what earlier versions took\)"
    with pytest.raises(ArtifactError, match=hint):
        airrep.build_index(TRAIN, old.path, "tracin", settings=at(lm))
    assert airrep.build_index(TRAIN, old.path, "tracin", settings=at(lm, preset="paper")).fingerprint == old.fingerprint


@pytest.mark.parametrize("preset", ["measured", "paper"])
def test_an_interrupted_build_goes_on(preset: str, lm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = at(lm, **({"preset": "paper"} if preset == "paper" else {}))
    whole = airrep.build_index(TRAIN, tmp_path / "whole", "logra", settings=given, shard_rows=5)
    write, written = sealing.write_shard, []

    def cut(folder: Path, *values: Any) -> None:
        if len(written) == 1:
            raise KeyboardInterrupt
        write(folder, *values)
        written.append(folder.name)

    monkeypatch.setattr(sealing, "write_shard", cut)
    with pytest.raises(KeyboardInterrupt):
        airrep.build_index(TRAIN, tmp_path / "cut", "logra", settings=given, shard_rows=5)
    monkeypatch.setattr(
        sealing, "write_shard", lambda folder, *values: (written.append(folder.name), write(folder, *values))
    )
    other = at(lm) if preset == "paper" else at(lm, preset="paper")
    with pytest.raises(ArtifactError, match=r"unfinished index of other data or settings \(--set preset=paper gives"):
        airrep.build_index(TRAIN, tmp_path / "cut", "logra", settings=other, shard_rows=5)
    resumed = airrep.build_index(TRAIN, tmp_path / "cut", "logra", settings=given, shard_rows=5)
    assert len(written) == len(set(written)) == 3, "no shard is encoded twice"
    assert resumed.fingerprint == whole.fingerprint
    assert resumed.manifest["settings"] == whole.manifest["settings"]


def test_parts_are_those_of_a_new_index(lm: str, tmp_path: Path) -> None:
    parts = [
        build_part(TRAIN, tmp_path / f"part-{n}", f"{n}/2", "logra", settings=at(lm), shard_rows=7).path for n in (1, 2)
    ]
    joined = join_parts(parts, tmp_path / "joined")
    whole = airrep.build_index(TRAIN, tmp_path / "whole", "logra", settings=at(lm), shard_rows=7)
    assert joined.fingerprint == whole.fingerprint
    assert joined.manifest["settings"] == whole.manifest["settings"]


def test_channels_stay_as_they_are(lm: str) -> None:
    plain = Channel(method="logra", settings=at(lm))
    made = ChannelsAttributor(ChannelsSettings(channels=(plain,)))
    (part,), (channel,) = made.parts, made.channels
    assert chosen(part.settings) == (None, None, 1.0)
    assert str(made._pools[0]) == "sum"
    assert channel.settings == at(lm)
    default = ChannelsSettings(lm=lm).channels[-1]
    assert (default.pool, default.temperature, default.settings["modules"]) == ("diminishing", 1.0, ["all-linear"])
    assert not {"preset", "pool", "temperature"} & set(default.settings)


def test_a_channel_may_have_a_preset(lm: str) -> None:
    made = ChannelsAttributor(
        ChannelsSettings(channels=(Channel(method="tracin", settings=at(lm, preset="measured")),))
    )
    assert str(made._pools[0]) == "signed-attention at temperature 0.3"
    kept = made.settings.model_dump(mode="json")["channels"][0]["settings"]
    assert (kept["modules"], kept["pool"], "preset" in kept) == (["all-linear"], "signed-attention", False)


def labelled(name: str, seed: int, size: int = 5) -> LabelledInstance:
    """Twelve subsets of the training examples, with random losses of the queries of a name."""
    generator = np.random.default_rng(seed)
    members = {str(j): generator.choice(len(TRAIN), size, replace=False) for j in range(12)}
    losses = generator.standard_normal((6, 12)).astype(np.float32)
    return LabelledInstance(name, TRAIN, make_corpus(6, name), Groups.from_lists(members), losses)


@pytest.mark.parametrize("name", OWN)
def test_evaluations_tell_the_pool_and_its_temperature(name: str, lm: str, tmp_path: Path) -> None:
    index, judged = airrep.build_index(TRAIN, tmp_path / "index", name, settings=at(lm)), [labelled("a", 1)]
    pool, temperature = OWN[name]

    def row(**asked: Any) -> Any:
        (only,) = evaluate_lds([index], judged, resamples=5, **asked).rows
        return only

    own, told = row(), temperature if name == "tracin" else None
    assert (own.pool, own.temperature) == (pool, told)
    named = row(pool=pool, temperature=temperature)
    assert (named.value, named.temperature) == (own.value, told)
    assert (row(pool="sum").pool, row(pool="sum").temperature) == ("sum", None)
    if name == "tracin":
        assert (row(pool=pool).temperature, row(temperature=0.7).temperature) == (1.0, 0.7)
    paper = airrep.build_index(TRAIN, tmp_path / "paper", name, settings=at(lm, preset="paper"))
    (summed,) = evaluate_lds([paper], judged, resamples=5).rows
    assert (summed.pool, summed.temperature) == ("sum", None)


def test_a_temperature_that_is_chosen_on_labels_may_be_the_methods_own(
    lm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = airrep.build_index(TRAIN, tmp_path / "index", "tracin", settings=at(lm))
    tried: list[Any] = []
    monkeypatch.setattr(
        "airrep.evaluation.lds.best_of", lambda some, *_: (tried.extend(some), some[0])[1]
    )  # the first of equals
    (row,) = evaluate_lds([index], [labelled("a", 1)], resamples=5, tune=[labelled("b", 2)]).rows
    assert row.temperature == 0.3
    assert [str(one) for one in tried[:2]] == ["signed-attention at temperature 0.3", "signed-attention"]


def test_leaving_out_stays_a_sum(lm: str, tmp_path: Path) -> None:
    index = airrep.build_index(TRAIN, tmp_path / "index", "logra", settings=at(lm))
    generator = np.random.default_rng(0)
    gone = {"whole": np.arange(len(TRAIN)), **{str(j): np.delete(np.arange(len(TRAIN)), [j, j + 5]) for j in range(7)}}
    losses = generator.standard_normal((3, len(gone))).astype(np.float32)
    removals = LabelledInstance("r", TRAIN, QUERIES, Groups.from_lists(gone), losses)
    (row,) = evaluate_loo([index], [removals], resamples=5).rows
    assert (row.pool, row.temperature) == ("sum", None)


def test_what_a_stack_learns_keeps_a_temperature_of_1(lm: str) -> None:
    method = attributor_of_new_index("logra", at(lm))
    channel = Channel(method="logra", settings=at(lm, preset="measured")).with_common({}, None)
    for pooling in (Pooling("attention"), Pooling("attention", temperature=0.4), Pooling("sum")):
        assert channel_pooling(_with_pooling(channel, method, pooling), method) == pooling
