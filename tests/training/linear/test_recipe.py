"""Recipes learnt on planted worlds where each channel knows a part."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from worlds.small_world import HashAttributor, make_corpus, tree

from airrep import check_attributor
from airrep.attributors.methods import METHODS, make_attributor
from airrep.attributors.recipes import Channel, ChannelsSettings, placed, unplaced
from airrep.attributors.settings import METHOD_SETTINGS
from airrep.corpus.corpus import Example
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.evaluation.judging import held_out_lds, score_instance
from airrep.evaluation.statistics.labels import normalise_losses
from airrep.index.building import build_index
from airrep.index.encoding import MethodCopy
from airrep.index.index import Index
from airrep.labels.labels import LabelledInstance
from airrep.runtime.settings import Settings
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import exponents
from airrep.training.linear import recipe
from airrep.training.linear.weights import NothingRisesError, fit_weights

WIDTH = 6


def _vector(example: Example, part: str) -> np.ndarray:
    """Features that the text decides, of unit deviation."""
    found = hashlib.sha256(f"{part} {example.content_hash}".encode()).digest()
    return np.frombuffer(found[: 2 * WIDTH], np.int16).astype(np.float32) / 2**14


class PartSettings(Settings):
    part: str = "one"
    scale: float = 1.0
    encoder: str | None = None  # not read here: a folder that a recipe names


class PartAttributor(HashAttributor):
    """Knows one part of what decides the losses."""

    name = "part"
    pool = "sum"

    def __init__(self, settings: PartSettings | None = None) -> None:
        super().__init__()
        self._chosen = settings or PartSettings()

    @property
    def settings(self) -> PartSettings:
        return self._chosen

    @property
    def fingerprint(self) -> str:
        return f"{self._chosen.part:0>64}"

    def encode_train(self, examples: Sequence[Example], on_rows=None) -> np.ndarray:
        rows = [_vector(example, self._chosen.part) for example in examples]
        return np.float32(self._chosen.scale) * np.array(rows, np.float32).reshape(len(examples), WIDTH)


@pytest.fixture(autouse=True)
def _part_is_a_method(monkeypatch):
    part = dataclasses.replace(METHODS["tfidf"], name="part", settings=PartSettings, place=f"{__name__}:PartAttributor")
    monkeypatch.setitem(METHODS, "part", part)
    monkeypatch.setitem(METHOD_SETTINGS, "part", PartSettings)


def planted(seed: int, name: str, parts: Sequence[str] = ("one", "two"), n=50, q=12, m=30, size=12):
    """An instance whose −losses are sums over the members of the scores of all parts."""
    generator = np.random.default_rng(seed)
    train, queries = make_corpus(n, f"{name}-t"), make_corpus(q, f"{name}-q")
    scores = sum(
        np.array([_vector(x, part) for x in queries]) @ np.array([_vector(z, part) for z in train]).T for part in parts
    )
    members = {str(j): generator.choice(n, size, replace=False) for j in range(m)}
    rewards = np.stack([scores[:, rows].sum(axis=1) for rows in members.values()], axis=1)
    losses = 3 - 0.01 * rewards + 0.02 * generator.standard_normal(rewards.shape)
    return LabelledInstance(name, train, queries, Groups.from_lists(members), losses.astype(np.float32))


LEARN, HELD_OUT = planted(0, "a"), planted(1, "b")
ONE = Channel(method="part", settings={"part": "one"}, name="one")
TWO = Channel(method="part", settings={"part": "two", "scale": 100.0}, name="two")
USELESS = Channel(method="part", settings={"part": "none"}, name="useless")
TFIDF = Channel(method="tfidf")


def learnt(path):
    """The method of what was learnt."""
    return make_attributor("channels", {"channels": str(path)})


def shares(adapted) -> dict[str, float]:
    """Each channel's weight times the size of its scores, as a share: queries are scaled as examples are."""
    sizes = {one.title: one.weight * one.settings.get("scale", 1.0) ** 2 for one in adapted.channels}
    return {name: size / sum(sizes.values()) for name, size in sizes.items()}


def adapt(*arguments, **options):
    """A recipe whose intervals are drawn quickly."""
    return recipe.adapt(*arguments, **{"resamples": 40, **options})


def test_channels_that_each_know_a_half_make_a_sum_that_beats_both(tmp_path):
    told: list[str] = []
    adapted = adapt([ONE, TWO], [LEARN], [HELD_OUT], tmp_path / "adapted", tell=told.append)
    subsets = len(LEARN.subsets) + len(HELD_OUT.subsets)
    assert told == [
        f"method {number} of 2, {one.title}: scoring {subsets} subsets of training examples"
        for number, one in enumerate((ONE, TWO), 1)
    ]
    ours, *others = adapted.report["rows"]
    assert ours["lds"]["lds"] > 0.9
    assert ours["lds"]["lds"] > max(row["lds"]["lds"] for row in others) + 0.1
    assert adapted.report["better"]
    assert [row["name"] for row in adapted.report["rows"]] == [
        "sum", "one, sum", "two, sum", "sum without one", "sum without two"
    ]  # fmt: skip
    assert adapted.report["sentence"].startswith("Better than every method")
    assert f"({adapted.report['best']}) is +" in adapted.report["sentence"]
    assert shares(adapted) == pytest.approx({"one": 0.5, "two": 0.5}, abs=0.1)


def test_fine_tunes_that_hardly_moved_the_model_judge_nothing(tmp_path):
    def after(instance, drop):
        return dataclasses.replace(instance, base_losses=(instance.losses.mean(axis=1) + drop).astype(np.float32))

    losses = [dataclasses.replace(one, losses=2.9 + one.losses / 30) for one in (LEARN, HELD_OUT)]  # as they rank
    parts = [[after(one, 0.005)] for one in losses]
    adapted = adapt([ONE, TWO], *parts, tmp_path / "hardly", tuned="learning_rate 2e-05")
    assert adapted.report["sentence"].startswith("Not judged: the fine-tunes moved the queries' losses by 0.0")
    assert "--training" in adapted.report["sentence"]
    assert not adapted.report["better"]
    assert adapted.report["moved"]["hardly"]
    assert adapted.report["rows"][0]["lds"]["lds"] > 0.9  # which is what misled
    far = adapt([ONE, TWO], [after(LEARN, 1.0)], [after(HELD_OUT, 1.0)], tmp_path / "far", tuned="learning_rate 1")
    assert far.report["better"]
    assert far.report["sentence"].startswith("Better than every method")
    assert far.report["sentence"].endswith("This holds for fine-tunes with learning_rate 1.")


def test_a_useless_channel_gets_next_to_no_weight_and_the_sum_is_not_called_better(tmp_path):
    learn, held_out = planted(0, "a", ["one"]), planted(1, "b", ["one"])
    adapted = adapt([USELESS, ONE], [learn], [held_out], tmp_path / "adapted")
    assert shares(adapted).get("useless", 0.0) < 0.06
    assert not adapted.report["better"]
    assert adapted.report["sentence"].startswith("Not ")


def test_a_channel_that_misleads_is_left_out(tmp_path):
    def world(seed: int, name: str) -> LabelledInstance:
        good, bad = planted(seed, name, ["two"]), planted(seed, name, ["one"])
        return dataclasses.replace(good, losses=good.losses - bad.losses)

    adapted = adapt([ONE, TWO], [world(0, "a")], [world(1, "b")], tmp_path / "adapted")
    assert [one.title for one in adapted.channels] == ["two"]


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode])
def test_weights_are_learnt_where_gradients_are_switched_off(switch, tmp_path):
    wanted = adapt([ONE, TWO], [LEARN], [HELD_OUT], tmp_path / "adapted")
    with switch():
        found = adapt([ONE, TWO], [LEARN], [HELD_OUT], tmp_path / "other")
    assert shares(found) == shares(wanted)


def test_a_channel_that_scores_all_subsets_alike_is_left_out_and_told(tmp_path):
    flat = Channel(method="part", settings={"scale": 0.0}, name="flat")
    adapted = adapt([flat, TWO], [LEARN], [HELD_OUT], tmp_path / "adapted")
    assert [one.title for one in adapted.channels] == ["two"]
    assert adapted.report["scored_alike"] == ["flat"]


def test_a_relative_channel_is_weighed_by_query(tmp_path):
    """Each query's losses follow the channels as much as their scores vary, whatever the size of the second's."""

    def world(seed: int, name: str) -> LabelledInstance:
        one, two = planted(seed, name, ["one"]), planted(seed, name, ["two"])
        unit = [(part.losses - 3) / (part.losses - 3).std(axis=1, keepdims=True) for part in (one, two)]
        return dataclasses.replace(one, losses=(3 + unit[0] + unit[1]).astype(np.float32))

    learn, held_out = world(0, "a"), world(1, "b")
    relative = TWO.model_copy(update={"relative": True})
    made = [
        adapt([ONE, two], [learn], [held_out], tmp_path / name)
        for name, two in (("absolute", TWO), ("relative", relative))
    ]
    absolute, brought = (adapted.report["rows"][0]["lds"]["lds"] for adapted in made)
    assert brought > absolute
    assert made[1].channels[1].weight == pytest.approx(1.0, abs=0.4)
    found = held_out_lds([score_instance(learnt(tmp_path / "relative"), held_out)], [held_out])
    assert found.value == pytest.approx(brought, abs=0.05)  # other random groups tell the sizes there


def test_relative_channels_alone_are_weighed_as_they_are(tmp_path):
    relative = [one.model_copy(update={"relative": True}) for one in (ONE, TWO)]
    adapted = adapt(relative, [LEARN], [HELD_OUT], tmp_path / "adapted")
    assert [one.relative for one in adapted.channels] == [False, False]


def test_a_relative_channel_that_rises_is_taken_beside_one_that_falls(tmp_path):
    def world(seed: int, name: str) -> LabelledInstance:
        good, bad = planted(seed, name, ["two"]), planted(seed, name, ["one"])
        return dataclasses.replace(good, losses=good.losses - bad.losses)

    two = TWO.model_copy(update={"relative": True})
    adapted = adapt([ONE, two], [world(0, "a")], [world(1, "b")], tmp_path / "adapted")
    assert [(one.title, one.relative) for one in adapted.channels] == [("two", False)]
    assert adapted.report["rows"][0]["lds"]["lds"] > 0.5
    assert learnt(tmp_path / "adapted").settings.channels == adapted.channels


def test_members_that_all_fall_are_refused(tmp_path):
    falls = dataclasses.replace(LEARN, losses=6 - LEARN.losses)
    two = TWO.model_copy(update={"relative": True})
    with pytest.raises(NothingRisesError, match="no method predicts the losses"):
        adapt([ONE, two], [falls], [HELD_OUT], tmp_path / "adapted")


def test_a_sum_of_one_channel_ranks_as_the_method(tmp_path):
    adapt([TWO], [LEARN], [HELD_OUT], tmp_path / "adapted")
    scores = [
        score_instance(method, HELD_OUT)
        for method in (learnt(tmp_path / "adapted"), make_attributor("part", {"part": "two"}))
    ]
    np.testing.assert_allclose(scores[0] / scores[0].std(), scores[1] / scores[1].std(), rtol=1e-4, atol=1e-5)


def test_what_the_method_scores_is_what_was_judged(tmp_path):
    adapted = adapt([ONE, TFIDF], [LEARN], [HELD_OUT], tmp_path / "adapted")
    found = held_out_lds([score_instance(learnt(tmp_path / "adapted"), HELD_OUT)], [HELD_OUT])
    assert found.value == pytest.approx(adapted.report["rows"][0]["lds"]["lds"], abs=1e-3)


def test_group_scores_have_about_a_unit_of_deviation(tmp_path):
    adapt([ONE, TWO], [LEARN], [HELD_OUT], tmp_path / "adapted")
    scores = score_instance(learnt(tmp_path / "adapted"), LEARN)
    assert 0.5 < np.std(scores - scores.mean(axis=1, keepdims=True)) < 1.01


def test_an_index_of_learnt_channels_does_all_that_one_of_a_method_does(tmp_path):
    adapt([ONE, Channel(method="tfidf", settings={"ngrams": 2})], [LEARN], [HELD_OUT], tmp_path / "adapted")
    settings = {"channels": str(tmp_path / "adapted")}
    build_index(HELD_OUT.train, tmp_path / "index", "channels", settings=settings, shard_rows=16)
    index, queries = Index(tmp_path / "index"), HELD_OUT.queries
    best = index.top(queries, 3)
    whole = index.scores(queries)
    assert [hits[0].row for hits in best] == whole.argmax(axis=1).tolist()
    groups = index.group_scores(queries, "source", "sum")
    what_if = index.what_if(queries, remove=index.where(source="forum"), pool="sum")
    removed = groups.scores[:, groups.names.index("forum")]
    np.testing.assert_allclose(what_if.change, -removed, rtol=1e-3, atol=1e-3)


def test_learnt_channels_conform_dense_and_sparse_and_work_in_other_processes(tmp_path):
    adapt([ONE, TWO], [planted(0, "a", ["one"])], [HELD_OUT], tmp_path / "dense")
    adapt([ONE, TFIDF], [planted(0, "a", ["one"])], [HELD_OUT], tmp_path / "mixed")
    for name in ("dense", "mixed"):
        check_attributor(lambda name=name: learnt(tmp_path / name))
        method = learnt(tmp_path / name)
        method.fit(LEARN.train)
        assert MethodCopy.of(method).make().fingerprint == method.fingerprint


def test_what_was_learnt_can_be_a_member_again(tmp_path):
    adapt([ONE, TWO], [LEARN], [HELD_OUT], tmp_path / "a")
    channels = ChannelsSettings.of({"channels": str(tmp_path / "a")}).channels
    assert [one.title for one in channels] == ["one", "two"]
    adapt(channels, [LEARN], [HELD_OUT], tmp_path / "b")
    assert ChannelsSettings.of({"channels": str(tmp_path / "b")}) == ChannelsSettings.of(
        {"channels": str(tmp_path / "a")}
    )


def test_rivals_are_judged_as_they_are_and_are_no_part(tmp_path):
    rivals = {"two": make_attributor("part", {"part": "two"}), "tfidf": make_attributor("tfidf")}
    adapted = adapt([ONE], [LEARN], [HELD_OUT], tmp_path / "adapted", rivals=rivals)
    names = [row["name"] for row in adapted.report["rows"]]
    assert names == ["sum", "one, sum", "two", "tfidf"]
    expected = held_out_lds([score_instance(make_attributor("tfidf"), HELD_OUT)], [HELD_OUT]).value
    assert adapted.report["rows"][3]["lds"]["lds"] == pytest.approx(expected, abs=1e-6)
    assert not adapted.report["better"]  # the rival knows as much


@pytest.mark.parametrize("pool", ["attention", "signed-attention"])
def test_attention_is_chosen_where_one_example_of_a_group_decides(tmp_path, pool):
    """The example with the largest score, or with the score of the largest size."""

    def world(seed: int, name: str) -> LabelledInstance:
        plain = planted(seed, name, ["one"])
        part = make_attributor("part", {"part": "one"})
        scores = part.encode_train(plain.queries) @ part.encode_train(plain.train).T
        members = [scores[:, plain.subsets.members(j)] for j in range(len(plain.subsets))]
        chosen = [np.argmax(exponents(some, pool), axis=1)[:, None] for some in members]
        best = [np.take_along_axis(*one, axis=1)[:, 0] for one in zip(members, chosen, strict=True)]
        return dataclasses.replace(plain, losses=(3 - np.stack(best, axis=1)).astype(np.float32))

    adapted = adapt([ONE], [world(0, "a")], [world(1, "b")], tmp_path / "adapted")
    assert adapted.channels[0].pool == pool
    assert adapted.channels[0].temperature != 1
    names = [row["name"] for row in adapted.report["rows"]]
    assert names[1].startswith(f"one, {pool} at temperature")
    assert names[2] == "one, sum"  # as it came, for comparison


def test_a_pool_that_is_not_clearly_better_is_not_taken(tmp_path):
    """Labels of noise alone prefer some pool by chance."""
    generator = np.random.default_rng(5)
    noise = dataclasses.replace(LEARN, losses=generator.random(LEARN.losses.shape).astype(np.float32))
    mixed = dataclasses.replace(noise, losses=noise.losses + 0.2 * LEARN.losses)
    adapted = adapt([ONE, TWO], [mixed], [HELD_OUT], tmp_path / "adapted")
    assert {one.pool for one in adapted.channels} == {None}


def test_weights_are_those_of_least_ranking_loss():
    """Against Eq. 8 written out over pairs, in float64, with another optimiser."""
    generator = np.random.default_rng(3)
    scores = [[generator.standard_normal((5, 9)).astype(np.float32) * size] for size in (1.0, 30.0)]
    losses = [(-scores[0][0] - scores[1][0] / 60 + generator.standard_normal((5, 9))).astype(np.float32)]
    labels = normalise_losses(losses[0]).labels.astype(np.float64)

    def written_out(logs: np.ndarray) -> float:
        f = sum(np.exp(log) * one[0].astype(np.float64) for log, one in zip(logs, scores, strict=True))
        total, count = 0.0, 0
        for query in range(5):
            for i in range(9):
                for j in range(9):
                    gap = labels[query, i] - labels[query, j]
                    if gap >= 0.1:
                        total += min(gap, 5.0) * np.log1p(np.exp(f[query, j] - f[query, i]))
                        count += 1
        return total / count

    best = np.exp(minimize(written_out, [0.0, -4.0], method="Nelder-Mead", options={"xatol": 1e-6}).x)
    weights = np.array(fit_weights(scores, losses))
    np.testing.assert_allclose(weights[0] / weights[1], best[0] / best[1], rtol=0.01)


def test_missing_losses_are_passed_over():
    generator = np.random.default_rng(3)
    scores = [[generator.standard_normal((5, 9)).astype(np.float32)] for _ in range(2)]
    losses = -scores[0][0] - scores[1][0]
    losses[1, 3] = losses[2, :] = np.nan
    assert np.isfinite(fit_weights(scores, [losses])).all()


def test_what_was_learnt_moves_with_the_encoder_beside_it(tmp_path):
    home, away = tmp_path / "home", tmp_path / "away"
    (home / "encoder").mkdir(parents=True)
    member = Channel(method="part", settings={"part": "one", "encoder": str(home / "encoder")})
    request = ([member], [LEARN], [HELD_OUT], home / "adapted")
    made = adapt(*request)
    assert [one.settings["encoder"] for one in made.channels] == [str(home / "encoder")]
    assert adapt(*request).channels == made.channels
    home.rename(away)
    found = ChannelsSettings(channels=str(away / "adapted")).channels
    assert [one.settings["encoder"] for one in found] == [str(away / "encoder")]
    moved = member.model_copy(update={"settings": {**member.settings, "encoder": str(away / "encoder")}})
    assert adapt([moved], *request[1:3], away / "adapted").channels == found  # it is known again there


def test_a_model_beside_what_was_learnt_is_named_from_there_and_another_by_its_whole_path(tmp_path):
    (tmp_path / "warm").mkdir()
    settings = {"lm": str(tmp_path / "warm"), "tokenizer": "/else/where", "view": "response"}
    told = unplaced(Channel(method="ngram", settings=settings), tmp_path / "adapted")
    assert told["settings"] == {**settings, "lm": "../warm"}
    assert placed(told, tmp_path / "moved" / "adapted")["settings"]["lm"] == str(tmp_path / "moved" / "warm")


@pytest.mark.parametrize("out", ["adapted", "./adapted", "runs/../adapted"])
def test_a_place_that_is_told_from_the_working_directory_is_as_good_as_a_whole_path(tmp_path, monkeypatch, out):
    for name in ("warm", "default", "words", "runs"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    for given in ("warm", str(tmp_path / "warm")):
        told = unplaced(Channel(method="ngram", settings={"lm": given}), Path(out))
        assert told["settings"] == {"lm": "../warm"}
    kept = {"encoder": "default", "tokenizer": "words", "lm": "owner/model"}  # no folders, whatever lies beside them
    assert unplaced(Channel(method="airrep", settings=kept), Path(out))["settings"] == kept


def test_the_same_request_is_answered_at_once_and_another_is_refused(tmp_path, monkeypatch):
    out = tmp_path / "adapted"
    made = adapt([ONE, TWO], [LEARN], [HELD_OUT], out)
    before = tree(out)
    with monkeypatch.context() as patch:
        patch.setattr(PartAttributor, "encode_train", None)
        again = adapt([ONE, TWO], [LEARN], [HELD_OUT], out)
    assert (again.report, again.channels) == (json.loads(json.dumps(made.report)), made.channels)
    with pytest.raises(ArtifactError, match="holds a recipe learnt with another resamples"):
        adapt([ONE, TWO], [LEARN], [HELD_OUT], out, resamples=41)
    assert tree(out) == before
    adapt([ONE, TWO], [LEARN], [HELD_OUT], out, resamples=41, replace=True)
    assert tree(out) != before


def test_bad_requests_are_one_line(tmp_path):
    out = tmp_path / "adapted"
    with pytest.raises(ConfigError, match="adapt: methods are missing"):
        adapt([], [LEARN], [HELD_OUT], out)
    for learn, judge, option in (([], [HELD_OUT], "--labels"), ([LEARN], [], "--held-out")):
        with pytest.raises(ConfigError, match=rf"adapt: .*\({option}\) are missing"):
            adapt([ONE], learn, judge, out)
    with pytest.raises(DataError, match=r"^held-out labels .*, instance a: query 'a-q0'"):
        adapt([ONE], [LEARN], [LEARN], out)
    flat = Channel(method="part", settings={"scale": 0.0}, name="flat")
    with pytest.raises(DataError, match="every method gives all subsets the same score"):
        adapt([flat], [LEARN], [HELD_OUT], out)
    upside_down = dataclasses.replace(LEARN, losses=-LEARN.losses)
    with pytest.raises(DataError, match="no method predicts the losses"):
        adapt([ONE, TWO], [upside_down], [HELD_OUT], out)
    same = dataclasses.replace(LEARN, losses=np.ones_like(LEARN.losses))
    with pytest.raises(DataError, match="no query's loss varies"):
        adapt([ONE], [same], [HELD_OUT], out)
    with pytest.raises(ConfigError, match="has no channels.yaml"):
        learnt(tmp_path)
