"""What a diagnosis says of labels and indexes that are known to be good or bad."""

import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from reference import pooling as reference
from worlds.small_world import HashAttributor, make_corpus

from airrep.attributors.base import TrainedGroups
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.evaluation.diagnosis import Diagnosis, diagnose, diagnosis_request, index_findings, seconds_of_fine_tunes
from airrep.evaluation.findings import Finding, LabelStatistics, jsonable, label_findings, level_of, worst
from airrep.index.building import build_index
from airrep.index.index import Index
from airrep.labels.labels import LabelledInstance
from airrep.scoring.groups import Groups

TRAIN = make_corpus(200)
Q, M, K = 24, 80, 12


def instance(
    signal: float = 0.4,
    noise: float | None = 0.1,
    drop: float = 1.0,
    common: float = 0.0,
    members: Groups | None = None,
    name: str = "0",
) -> LabelledInstance:
    """Losses of *signal* over subsets and *noise* between two seeds (None: one seed), *drop* below the base's."""
    random = np.random.default_rng(0)
    quality, own = random.normal(size=M), random.normal(size=(Q, M))
    truth = 4 + signal * (common * quality + math.sqrt(1 - common**2) * own)
    by_seed = (truth + (noise or 0) * random.normal(size=(2, Q, M))).astype(np.float32)
    subsets = members or Groups.from_lists({str(j): random.permutation(len(TRAIN))[:K] for j in range(M)})
    losses = by_seed[0] if noise is None else by_seed.mean(axis=0)
    queries = make_corpus(Q, f"{name}-q")
    base = (losses.mean(axis=1) + drop).astype(np.float32)
    return LabelledInstance(name, TRAIN, queries, subsets, losses, base, None if noise is None else by_seed)


def findings(*instances: LabelledInstance, seconds: float | None = None) -> dict[str, Finding]:
    return {found.anchor: found for found in label_findings(LabelStatistics(instances, seconds))}


def test_good_labels_are_called_good_in_all_respects() -> None:
    found = findings(instance())
    assert {one.level for one in found.values()} == {"good"}
    assert len(found) == 8


def test_fine_tuning_that_teaches_nothing_is_told_by_the_base_losses() -> None:
    assert findings(instance(drop=-0.1))["what-fine-tuning-taught"].level == "bad"
    mixed = instance()
    assert mixed.base_losses is not None
    base = np.where(np.arange(Q) < 8, mixed.base_losses - 1.5, mixed.base_losses)
    some = findings(dataclasses.replace(mixed, base_losses=base))["what-fine-tuning-taught"]
    assert (some.level, some.values["share_raised"]) == ("look", pytest.approx(1 / 3))
    unknown = findings(dataclasses.replace(mixed, base_losses=None))
    assert unknown["what-fine-tuning-taught"].level == "unknown"
    assert unknown["spread-over-subsets"].level == "good"


def test_a_model_that_hardly_moved_is_told_however_well_subsets_rank() -> None:
    found = findings(instance(0.01, 1e-4, drop=0.03))
    assert found["what-fine-tuning-taught"].level == "bad"
    assert "The model hardly moved: " in found["what-fine-tuning-taught"].verdict
    assert found["reliability-of-the-labels"].level == "good"


@pytest.mark.parametrize(("signal", "drop", "level"), [(0.4, 1, "good"), (0.4, 20, "look"), (5e-3, 0.01, "look")])
def test_the_spread_is_judged_by_itself_and_beside_what_fine_tuning_did(signal, drop, level) -> None:
    found = findings(instance(signal, signal / 4, drop))["spread-over-subsets"]
    assert found.level == level
    assert found.values["deviation"][1] == pytest.approx(signal, rel=0.15)
    assert found.values["seed_deviation"][1] == pytest.approx(signal / 4, rel=0.15)


def test_losses_that_hardly_move_are_bad() -> None:
    assert findings(instance(1e-4, 1e-5))["spread-over-subsets"].level == "bad"


@pytest.mark.parametrize(("noise", "level"), [(0.1, "good"), (0.4, "look"), (1.2, "bad")])
def test_reliability_is_that_of_the_mean_of_the_seeds(noise: float, level: str) -> None:
    found = findings(instance(noise=noise))["reliability-of-the-labels"]
    expected = 0.16 / (0.16 + noise**2 / 2)
    assert found.level == level
    assert found.values["reliability"] == pytest.approx(expected, abs=0.08)
    assert found.values["ceiling"] == pytest.approx(math.sqrt(expected), abs=0.1)


def test_seeds_that_give_the_same_losses_tell_no_ceiling() -> None:
    same = instance(noise=1e-6)
    assert LabelStatistics([same]).ceiling is None
    told = findings(same)["reliability-of-the-labels"]
    assert (told.level, told.number) == ("look", "not known")
    assert "fit in one batch" in told.verdict
    assert LabelStatistics([same, instance(name="1")]).ceiling == LabelStatistics([instance(name="1")]).ceiling


def test_an_instance_is_never_looked_at_twice() -> None:
    one = instance()
    copy = dataclasses.replace(one, name="copy/0")
    with pytest.raises(ConfigError, match="^instances .* 0 and copy/0 have the same examples, subsets and losses"):
        diagnose([one, copy])
    with pytest.raises(ConfigError, match="^instances .* 0 and 0 have the same"):
        diagnosis_request([one, one], [], None, 1.0)


def test_one_seed_leaves_reliability_unknown_and_says_what_finding_out_costs() -> None:
    found = findings(instance(noise=None), seconds=90.0)
    reliability = found["reliability-of-the-labels"]
    assert reliability.level == found["queries-without-signal"].level == "unknown"
    assert "--subsets 8 --size 12" in reliability.verdict
    assert "--seeds 2: 16 fine-tunes, about 24 min on one core" in reliability.verdict
    assert "about" not in findings(instance(noise=None))["reliability-of-the-labels"].verdict


def test_queries_that_subsets_do_nothing_to_are_counted() -> None:
    plain = instance()
    assert plain.by_seed is not None
    by_seed = plain.by_seed.copy()
    by_seed[:, :6] = 4 + 0.1 * np.random.default_rng(1).normal(size=(2, 6, M))
    by_seed[:, 6:8] = 3.0
    found = findings(dataclasses.replace(plain, losses=by_seed.mean(axis=0), by_seed=by_seed))
    silent = found["queries-without-signal"]
    assert (silent.values["count"], silent.values["constant"], silent.level) == (8, 2, "bad")
    for count, told in ((1, "The losses of 1 query are"), (2, "The losses of 2 queries are")):
        losses = np.where(np.arange(Q) < 8 - count, plain.losses.T, by_seed[0].T).T
        alone = findings(dataclasses.replace(plain, losses=losses, by_seed=None))["queries-without-signal"]
        assert alone.number.startswith(f"at least {count} of 24")
        assert alone.verdict.startswith(told)


def test_labels_that_do_not_vary_at_all_are_diagnosed_too() -> None:
    plain = instance()
    flat = np.full((2, Q, M), 3.0, np.float32)
    found = findings(dataclasses.replace(plain, losses=flat[0], by_seed=flat))
    for anchor in ("spread-over-subsets", "reliability-of-the-labels", "queries-without-signal"):
        assert found[anchor].level == "bad"
    assert found["a-common-factor"].level == "unknown"
    assert found["queries-without-signal"].values["constant"] == Q


def test_subsets_that_share_most_members_or_are_drawn_unevenly_are_found() -> None:
    random = np.random.default_rng(2)
    large = Groups.from_lists({str(j): random.permutation(200)[:150] for j in range(M)})
    found = findings(instance(members=large))["overlap-of-subsets"]
    assert found.level == "look"
    assert "make the subsets smaller" in found.verdict
    uneven = Groups.from_lists({str(j): random.permutation(40)[:K] for j in range(M)})
    assert "more than random draws" in findings(instance(members=uneven))["overlap-of-subsets"].verdict
    small_pool = dataclasses.replace(instance(members=uneven), train=TRAIN.take(np.arange(40)))
    many = findings(small_pool)["overlap-of-subsets"]
    assert many.values["instances"][0]["observed"] == pytest.approx(0.3, abs=0.03)
    assert "a larger pool" in many.verdict


def test_too_few_subsets_are_told_with_the_number_that_would_do() -> None:
    plain = instance(common=0.9)
    found = findings(plain)["number-of-subsets"]
    assert found.level == "bad"
    assert found.values["error_of_a_query"] == pytest.approx(1 / math.sqrt(M - 1))
    wanted = found.values["subsets_wanted"]
    assert found.values["error"] * math.sqrt((M - 1) / (wanted - 1)) == pytest.approx(0.025, rel=0.02)
    assert f"--subsets {wanted}" in found.verdict
    twice = findings(plain, dataclasses.replace(plain, name="1"))["number-of-subsets"]
    assert twice.values["error"] == pytest.approx(found.values["error"] / math.sqrt(2))


def test_a_quality_that_all_queries_share_is_found_and_so_is_length() -> None:
    shared = findings(instance(common=0.95))["a-common-factor"]
    assert shared.level == "bad"
    assert shared.values["one_number_lds"] > 0.8
    plain = instance()
    sizes = np.array([sum(len(TRAIN[int(row)].response) for row in plain.subsets.members(j)) for j in range(M)])
    ruled = 4 - 0.4 * (sizes - sizes.mean()) / sizes.std() + 0.05 * (plain.losses - 4)
    found = findings(dataclasses.replace(plain, losses=ruled.astype(np.float32), by_seed=None))["length-of-responses"]
    assert found.level == "bad"
    assert found.values["lds"] > 0.9
    assert "longer responses are better" in found.verdict


def contrast(queries: int, subsets: int, common: float) -> LabelledInstance:
    """Losses in which half of the queries want what the others do not, so that one number tells nothing."""
    random = np.random.default_rng(3)
    quality, own = random.normal(size=subsets), random.normal(size=(queries, subsets))
    sign = np.where(np.arange(queries) % 2, 1.0, -1.0)[:, None]
    losses = (4 + common * sign * quality + math.sqrt(1 - common**2) * own).astype(np.float32)
    plain = instance(noise=None)
    members = Groups.from_lists({str(j): plain.subsets.members(j) for j in range(subsets)})
    return LabelledInstance("0", TRAIN, make_corpus(queries, "0-q"), members, losses)


def test_a_common_factor_is_graded_by_what_it_explains_beyond_chance() -> None:
    by_chance = findings(contrast(8, 16, 0.6))["a-common-factor"]
    explained, floor = by_chance.values["explained"], by_chance.values["by_chance"]
    assert floor == pytest.approx((8**-0.5 + 15**-0.5) ** 2)
    assert explained > 0.5
    assert by_chance.values["beyond_chance"] == pytest.approx((explained - floor) / (1 - floor))
    assert by_chance.level == "good"
    assert findings(contrast(8, 16, 0.95))["a-common-factor"].level == "bad"


def test_a_common_factor_is_unknown_where_chance_alone_gives_half() -> None:
    found = findings(contrast(4, 10, 0.95))["a-common-factor"]
    assert found.values["by_chance"] > 0.5
    assert found.level == "unknown"
    assert "Too few queries or subsets" in found.verdict
    both = LabelStatistics([contrast(4, 10, 0.95), contrast(8, 16, 0.95)])
    assert next(one for one in label_findings(both) if one.anchor == "a-common-factor").level == "bad"


def test_an_instance_without_common_subsets_leaves_those_findings_unknown() -> None:
    plain = instance(noise=None)
    losses = plain.losses.copy()
    losses[np.arange(Q), np.arange(Q)] = np.nan
    losses[0, Q:] = np.nan
    found = findings(dataclasses.replace(plain, losses=losses))
    unknown = {name for name, one in found.items() if one.level == "unknown"}
    assert unknown >= {"number-of-subsets", "a-common-factor", "length-of-responses"}


def test_nothing_or_broken_losses_cannot_be_diagnosed() -> None:
    with pytest.raises(ConfigError, match="diagnose: no labels"):
        LabelStatistics([])
    broken = instance()
    with pytest.raises(DataError, match="infinite"):
        LabelStatistics([dataclasses.replace(broken, losses=np.full((Q, M), np.inf, np.float32))])


def test_levels_are_graded_in_both_directions_and_nan_is_unknown() -> None:
    assert [level_of(value, 0.1, 0.3) for value in (0.05, 0.1, 0.3, math.nan)] == ["good", "look", "bad", "unknown"]
    assert [level_of(value, 0.8, 0.5) for value in (0.9, 0.8, 0.5)] == ["good", "look", "bad"]
    assert worst("good", "unknown", "look") == "look"
    assert jsonable({"a": np.array([1.0, np.nan]), "b": (np.int64(2), math.inf)}) == {"a": [1.0, None], "b": [2, None]}


class Trained(HashAttributor):
    """Says that it was trained for attention over groups of 100."""

    trained_groups = TrainedGroups("attention", 100, 100)


class Blind(HashAttributor):
    """Sees nothing in any text."""

    def _features(self, example: Example) -> np.ndarray:
        return np.zeros(16, np.float32)


@pytest.fixture
def built(tmp_path: Path):
    """Build an index of the train pool by a method."""

    def build(method: HashAttributor) -> Index:
        build_index(TRAIN, tmp_path / "index", method, shard_rows=64)
        return Index(tmp_path / "index", method)

    return build


def labels_of(method: HashAttributor, pool: str, temperature: float = 1.0) -> LabelledInstance:
    """An instance that a method's own group scores rank perfectly."""
    plain = instance()
    members = [plain.subsets.members(j).tolist() for j in range(M)]
    train, queries = method.encode_train(plain.train), method.encode_queries(plain.queries)
    losses = 4 - reference.group_scores(queries, train, members, pool, temperature)
    return dataclasses.replace(plain, losses=losses.astype(np.float32), by_seed=None)


def look_at(index: Index, *instances: LabelledInstance, **how) -> dict[str, Finding]:
    return {one.name: one for one in index_findings(index, LabelStatistics(instances), resamples=50, **how)}


def test_an_index_that_sees_all_is_good_and_one_that_sees_nothing_is_not(built) -> None:
    method = HashAttributor()
    found = look_at(built(method), labels_of(method, "attention"))
    assert found["LDS"].level == "good"
    assert found["LDS"].values["lds"] > 0.99
    other = look_at(built(method), instance())
    assert other["LDS"].level == "bad"
    assert other["LDS"].values["ceiling"] < 1


def test_constant_losses_leave_an_index_without_lds(built) -> None:
    flat = dataclasses.replace(instance(), losses=np.full((Q, M), 3.0, np.float32), by_seed=None)
    found = look_at(built(HashAttributor()), flat)
    assert (found["LDS"].level, found["LDS"].number) == ("bad", "none")
    assert found["nearly constant group scores"].level == "good"


def test_features_of_0_and_constant_scores_are_found(built) -> None:
    found = look_at(built(Blind()), instance())
    assert found["LDS"].level == found["nearly constant group scores"].level == "bad"
    assert found["features that are all 0"].number == "200 of 200 rows, 24 of 24 queries"
    assert found["features that are all 0"].level == "bad"
    assert "too little for float16" in found["features that are all 0"].verdict


def test_attention_is_measured_by_the_members_that_count(built) -> None:
    method, plain = HashAttributor(), instance()
    index = built(method)
    train, queries = method.encode_train(plain.train), method.encode_queries(plain.queries)
    scores = queries.astype(np.float64) @ train.astype(np.float64).T / 0.5
    counts = []
    for j in range(20):
        size = np.exp(np.abs(scores[:, plain.subsets.members(j)]))
        weights = size / size.sum(axis=1, keepdims=True)
        counts.append(np.exp(-(weights * np.log(weights)).sum(axis=1)).mean())
    found = look_at(index, plain, temperature=0.5)["attention"]
    assert found.values["members"] == pytest.approx(np.mean(counts), rel=1e-3)
    assert found.values["size"] == K
    assert look_at(index, plain, temperature=1e4)["attention"].level == "look"
    assert look_at(index, plain, temperature=1e-4)["attention"].level == "bad"
    assert "attention" not in look_at(index, plain, pool="sum")


def test_training_on_other_groups_is_told(built) -> None:
    found = look_at(built(Trained()), instance())["trained for such groups"]
    assert found.level == "look"
    assert found.number.startswith("12 members; trained on 100")
    assert look_at(built(HashAttributor()), instance())["trained for such groups"].level == "good"


def test_a_label_on_whose_queries_the_method_fails_is_named(built) -> None:
    method = HashAttributor()
    plain = labels_of(method, "attention")
    examples = [dataclasses.replace(one, label="easy" if i < 14 else "hard") for i, one in enumerate(plain.queries)]
    losses = plain.losses.copy()
    losses[14:] = 4 + np.random.default_rng(3).normal(size=(10, M))
    found = look_at(built(method), dataclasses.replace(plain, queries=Corpus.from_examples(examples), losses=losses))
    assert found["LDS by label of the query"].verdict == "Clearly behind the rest: hard."
    assert [part["queries"] for part in found["LDS by label of the query"].values["parts"]] == [14, 10]
    nameless = Corpus.from_examples(dataclasses.replace(one, label=None) for one in plain.queries)
    assert "LDS by label of the query" not in look_at(built(method), dataclasses.replace(plain, queries=nameless))


def test_queries_that_fine_tuning_harms_and_those_that_hardly_move_are_judged_apart(built) -> None:
    method = HashAttributor()
    plain = labels_of(method, "attention")
    random = np.random.default_rng(4)
    losses, mean = plain.losses.copy(), plain.losses.mean(axis=1)
    losses[:12] = mean[:12, None] + 1e-3 * random.normal(size=(12, M))
    base = (mean + np.where(np.arange(Q) < 12, -0.5, 0.5)).astype(np.float32)
    found = look_at(built(method), dataclasses.replace(plain, losses=losses, base_losses=base))
    assert found["LDS by effect of fine-tuning"].verdict == "Clearly behind the rest: loss raised."
    parts = {part["name"]: part for part in found["LDS by spread over subsets"].values["parts"]}
    assert {name: part["queries"] for name, part in parts.items()} == {"least": 8, "middle": 8, "most": 8}
    assert parts["least"]["lds"] < 0.3 < 0.9 < parts["most"]["lds"]


def test_a_diagnosis_is_written_and_found_again_by_its_inputs(tmp_path: Path, built) -> None:
    index, plain = built(HashAttributor()), instance()
    made = diagnose([plain], [index], resamples=20, command="airrep diagnose labels")
    levels = ["bad", "look", "unknown", "good"]
    order = [levels.index(one.level) for one in made.findings]
    assert order == sorted(order)
    assert {one.about for one in made.findings} == {"labels", str(index.path)}
    made.save(tmp_path / "run")
    request = diagnosis_request([plain], [index], None, 1.0)
    again = Diagnosis.find(tmp_path / "run", request)
    assert again is not None
    assert again.to_dict() == Diagnosis.read(tmp_path / "run").to_dict() == json.loads(json.dumps(made.to_dict()))
    assert Diagnosis.find(tmp_path / "other", request) is None
    assert plain.by_seed is not None
    changed = dataclasses.replace(plain, by_seed=plain.by_seed + 1)
    for other in (diagnosis_request([changed], [index], None, 1.0), diagnosis_request([plain], [index], "sum", 1.0)):
        with pytest.raises(ArtifactError, match="holds a diagnosis made with another"):
            Diagnosis.find(tmp_path / "run", other)


def test_the_sentence_names_the_worst_finding_or_says_that_there_is_none() -> None:
    bad = Finding("spread", "bad", "0", "No.", "spread-over-subsets")
    fine = Finding("overlap", "good", "0", "Yes.", "overlap-of-subsets")
    assert Diagnosis((bad, fine)).sentence.endswith("Begin with spread (labels): docs/diagnosis.md#spread-over-subsets")
    assert Diagnosis((fine,)).sentence.startswith("No finding explains a low LDS")


def test_every_finding_has_its_paragraph_of_advice(built) -> None:
    page = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", line[3:]).lower().replace(" ", "-") for line in re.findall("^## .*$", page, re.M)
    }
    method = Trained()
    anchors = {one.anchor for one in diagnose([labels_of(method, "attention")], [built(method)], resamples=10).findings}
    assert anchors | {"lds-by-part"} <= headings


def test_the_seconds_of_a_fine_tune_are_read_where_they_were_noted(tmp_path: Path) -> None:
    assert seconds_of_fine_tunes([tmp_path]) is None
    lines = [
        {"task": "instance 0, before any fine-tune", "seconds": 100.0, "error": None},
        *({"task": f"instance 0, subset {j}, seed 0", "seconds": 1.0 + j, "error": None} for j in range(3)),
        {"task": "instance 0, subset 9, seed 0", "seconds": 900.0, "error": "out of memory"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "times-1of2.jsonl").write_text(text + '{"task": "instance 0, sub')
    assert seconds_of_fine_tunes([tmp_path]) == 2.0
