"""Draws of instances: disjoint, stable in number, and refused in one line when they cannot be."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds.small_world import make_corpus, tree

from airrep.corpus.corpus import Corpus, Example
from airrep.errors import AirRepError, ArtifactError, ConfigError, DataError
from airrep.labels import plan as plans
from airrep.labels.plan import Place, SamplingSettings, SubsetPlan, fine_tune_seed, open_plan
from airrep.labels.sampling import draw_removal, draw_subset, draw_without_repeats, fitted, quotas, sample
from airrep.runtime.artifacts import LOCK, partial_path
from airrep.runtime.publishing import write_file
from airrep.runtime.seeding import stream

SMALL = SamplingSettings(instances=3, train_count=30, query_count=5, subsets=4, size=8)

STRATA = np.repeat(np.arange(6), [1, 1, 2, 5, 11, 20])
REMOVED = {"kind": "removals"}
SHAPE = ("instances", "train_count", "query_count", "size", "subsets")


def changed(**values: object) -> SamplingSettings:
    """The small settings with some others."""
    return SamplingSettings.of(SMALL.model_dump() | values)


def make_repeats(count: int, prefix: str = "e") -> Corpus:
    """A corpus in which every text comes three times, under different ids."""
    return Corpus.from_examples(
        Example(f"prompt {prefix} {i // 3}", f"response {i // 3}", f"{prefix}{i}") for i in range(count)
    )


def many(count: int) -> Corpus:
    return Corpus.from_examples(Example("p", str(n), str(n)) for n in range(count))


def texts(corpus: Corpus, rows: np.ndarray) -> set[str]:
    return {corpus[int(row)].content_hash for row in rows}


def shapes(plan: SubsetPlan) -> list[tuple[int, int, list[int]]]:
    return [(len(i.train), len(i.queries), i.subsets.sizes.tolist()) for i in plan.instances]


def test_instances_have_the_asked_sizes_and_their_rows_in_order(tmp_path: Path, corpus: Corpus) -> None:
    plan = sample(corpus, tmp_path / "plan", SMALL)
    assert shapes(plan) == [(30, 5, [8] * 4)] * 3
    assert [instance.name for instance in plan.instances] == ["0", "1", "2"]
    assert (len(plan), plan.subset_count) == (3, 4)
    assert plan.query_fingerprint == plan.train_fingerprint
    for instance in plan.instances:
        assert (np.diff(instance.train) > 0).all()
        assert (np.diff(instance.queries) > 0).all()
        assert not set(instance.train) & set(instance.queries)


def test_rows_of_a_subset_are_those_of_the_corpus(tmp_path: Path, corpus: Corpus) -> None:
    plan = sample(corpus, tmp_path / "plan", SMALL)
    for i, instance in enumerate(plan.instances):
        for j in range(4):
            assert np.array_equal(plan.subset_rows(i, j), instance.train[instance.subsets.members(j)])
            assert set(plan.subset_rows(i, j)) <= set(plan.train_rows(i))
    assert np.array_equal(plan.query_rows(2), plan.instances[2].queries)
    for call in (lambda: plan.subset_rows(0, 4), lambda: plan.subset_rows(3, 0), lambda: plan.train_rows(-1)):
        with pytest.raises(IndexError):
            call()


@pytest.mark.parametrize("options", [{}, {"stratify": "label"}, {"disjoint_instances": True}, {"held_out": 1}])
def test_more_instances_and_subsets_leave_the_earlier_ones_alone(tmp_path: Path, options: dict[str, object]) -> None:
    corpus = make_corpus(200)
    few = sample(corpus, tmp_path / "few", changed(**options))
    many = sample(corpus, tmp_path / "many", changed(instances=5, subsets=9, **options))
    for i, instance in enumerate(few.instances):
        assert np.array_equal(instance.train, many.instances[i].train)
        assert np.array_equal(instance.queries, many.instances[i].queries)
        assert all(np.array_equal(few.subset_rows(i, j), many.subset_rows(i, j)) for j in range(4))


def test_another_seed_draws_another_plan(tmp_path: Path, corpus: Corpus) -> None:
    one, other = (sample(corpus, tmp_path / f"{seed}", changed(seed=seed)) for seed in (0, 1))
    assert not np.array_equal(one.instances[0].train, other.instances[0].train)
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize("apart", [False, True])
def test_no_text_of_a_query_is_in_its_train_pool_even_where_examples_repeat(tmp_path: Path, apart: bool) -> None:
    train = make_repeats(120)
    queries = make_repeats(60) if apart else None
    plan = sample(train, tmp_path / "plan", changed(train_count=None, query_count=10), queries)
    for instance in plan.instances:
        asked = texts(queries if queries is not None else train, instance.queries)
        assert len(asked) == 10
        assert len(instance.train) == 120 - 3 * 10
        assert not asked & texts(train, instance.train)


def test_disjoint_instances_share_no_text_at_all(tmp_path: Path) -> None:
    corpus = make_repeats(300)
    plan = sample(corpus, tmp_path / "plan", changed(disjoint_instances=True, train_count=20))
    seen: set[str] = set()
    for instance in plan.instances:
        own = texts(corpus, np.concatenate([instance.train, instance.queries]))
        assert not own & seen
        seen |= own


def test_held_out_instances_share_no_text_with_any_other(tmp_path: Path) -> None:
    corpus = make_repeats(150)
    plan = sample(corpus, tmp_path / "plan", changed(instances=5, held_out=1, train_count=25))
    own = [texts(corpus, np.concatenate([instance.train, instance.queries])) for instance in plan.instances]
    assert not any(own[0] & other for other in own[1:])
    assert own[1] & own[2]


def test_queries_can_come_from_another_corpus(tmp_path: Path, corpus: Corpus) -> None:
    queries = make_corpus(12, "q")
    plan = sample(corpus, tmp_path / "plan", changed(train_count=None, query_count=None), queries)
    assert shapes(plan)[0] == (50, 12, [8] * 4)
    assert (plan.train_fingerprint, plan.query_fingerprint) == (corpus.fingerprint, queries.fingerprint)
    plan.check_corpora(corpus, queries)
    with pytest.raises(DataError, match=r"was drawn from other query data \(fingerprint .*, now "):
        plan.check_corpora(corpus)
    with pytest.raises(DataError, match="was drawn from other train data"):
        plan.check_corpora(queries, queries)


def test_the_train_corpus_given_as_queries_is_the_same_as_none(tmp_path: Path, corpus: Corpus) -> None:
    sample(corpus, tmp_path / "one", SMALL)
    sample(corpus, tmp_path / "other", SMALL, make_corpus(50))
    assert tree(tmp_path / "one") == tree(tmp_path / "other")


def test_removals_are_the_whole_pool_and_the_pool_less_a_few(tmp_path: Path, corpus: Corpus) -> None:
    plan = sample(corpus, tmp_path / "plan", changed(kind="removals", removals=6, removal_size=2, instances=2))
    assert shapes(plan) == [(30, 5, [30] + [28] * 6)] * 2
    for i, instance in enumerate(plan.instances):
        assert np.array_equal(plan.subset_rows(i, 0), instance.train)
        removed = [set(instance.train) - set(plan.subset_rows(i, j)) for j in range(1, 7)]
        assert len(set().union(*removed)) == 12
    more = sample(corpus, tmp_path / "more", changed(kind="removals", removals=9, removal_size=2, instances=2))
    assert all(np.array_equal(plan.subset_rows(1, j), more.subset_rows(1, j)) for j in range(7))


@pytest.mark.parametrize(
    ("asked", "size", "one_order"),
    [
        ({"size": "95%"}, 28, True),
        ({"size": 27}, 27, True),
        ({"size": 26}, 26, False),
        ({"kind": "removals", "removals": 4, "removal_size": 3}, 27, True),
        ({"kind": "removals", "removals": 4, "removal_size": 4}, 26, False),
        ({"kind": "removals", "removals_by": "source"}, None, False),
        ({"kind": "paired", "size": 28}, 28, False),
    ],
)
def test_fine_tunes_that_lack_little_have_one_order_of_the_data(
    tmp_path: Path, asked: dict[str, Any], size: int | None, one_order: bool
) -> None:
    corpus = Corpus.from_examples(
        Example(f"p{i}", f"r{i}", f"{i}", source="rare" if i < 2 else "cab"[i % 3]) for i in range(31)
    )
    plan = sample(corpus, tmp_path / "plan", changed(instances=1, train_count=None, query_count=1, **asked))
    pool, count = plan.train_rows(0), plan.subset_count
    assert len(pool) == 30
    assert plan.one_order is one_order
    assert len({fine_tune_seed(plan, Place(0, j, 0)) for j in range(count)}) == (
        1 if one_order or asked.get("kind") == "paired" else count
    )
    assert fine_tune_seed(plan, Place(0, 1, 0)) != fine_tune_seed(plan, Place(0, 1, 1))
    for j in range(count):
        rows, members = plan.subset_rows(0, j), plan.instance(0).subsets.members(j)
        assert sorted(rows) == sorted(pool[members])
        if size is not None and len(rows) < len(pool):
            assert len(rows) == size
        moved = int((rows != pool[: len(rows)]).sum())
        assert moved <= len(pool) - len(rows) if one_order else (rows == pool[members]).all()


@pytest.mark.parametrize("by", ["source", "label"])
def test_removals_by_source_leave_out_each_of_the_pool_whole(tmp_path: Path, by: str) -> None:
    corpus = Corpus.from_examples(Example(f"p{i}", f"r{i}", f"{i}", **{by: "cab"[i % 3]}) for i in range(60))
    plan = sample(corpus, tmp_path / "plan", changed(kind="removals", removals_by=by, train_count=30, query_count=9))
    values = np.array(corpus.values(by))
    assert plan.subset_count == 4
    for i, instance in enumerate(plan.instances):
        assert np.array_equal(plan.subset_rows(i, 0), instance.train)
        for j, name in enumerate("cab", start=1):
            assert np.array_equal(plan.subset_rows(i, j), instance.train[values[instance.train] != name])


def test_pools_with_one_source_or_with_different_numbers_of_them_are_refused(tmp_path: Path) -> None:
    one, some = (
        Corpus.from_examples(Example(f"p{i}", f"r{i}", f"{i}", source=name(i)) for i in range(60))
        for name in (lambda _: "a", lambda i: "ab"[i % 2] if i > 1 else "cd"[i])
    )
    drawn = {"kind": "removals", "removals_by": "source", "train_count": 30, "query_count": 9}
    with pytest.raises(DataError, match="all its training examples have the same source"):
        sample(one, tmp_path / "plan", changed(**drawn))
    with pytest.raises(DataError, match=r"instance \d .*: has \d different sources, but earlier instances have \d"):
        sample(some, tmp_path / "plan", changed(**drawn, instances=9))
    assert not (tmp_path / "plan").exists()


@pytest.mark.parametrize("by", ["source", "label"])
def test_stratified_draws_keep_the_proportions_of_the_corpus(tmp_path: Path, by: str) -> None:
    corpus = Corpus.from_examples(
        Example(f"p{i}", f"r{i}", f"{i}", **{by: "rare" if i % 5 == 0 else "common"}) for i in range(200)
    )
    plan = sample(corpus, tmp_path / "plan", changed(stratify=by, train_count=100, query_count=50, size=20))
    values = np.array(corpus.values(by))
    for i, instance in enumerate(plan.instances):
        assert (values[instance.train] == "rare").sum() == 20
        assert (values[instance.queries] == "rare").sum() == 10
        assert all((values[plan.subset_rows(i, j)] == "rare").sum() == 4 for j in range(4))


def test_the_same_call_writes_the_same_bytes_even_after_an_interruption(tmp_path: Path, corpus: Corpus) -> None:
    plan = sample(corpus, tmp_path / "one", SMALL)
    partial = partial_path(tmp_path / "two")
    partial.mkdir()
    (partial / LOCK).touch()
    for name in (".train.npy.tmp", "train.npy", "stray.npy"):
        (partial / name).write_bytes(b"half")
    again = sample(corpus, tmp_path / "two", SMALL)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    assert plan.fingerprint == again.fingerprint
    assert not partial.exists()


@pytest.mark.parametrize("writes", range(6))
def test_a_full_disk_is_told_in_one_line_and_a_rerun_gives_the_same_bytes(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    sample(corpus, tmp_path / "one", SMALL)
    done: list[Path] = []

    def write_some(path: Path, content: bytes) -> None:
        if len(done) == writes:
            raise OSError(errno.ENOSPC, "No space left on device")
        done.append(path)
        write_file(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(plans, "write_file", write_some)
        with pytest.raises(ArtifactError, match="cannot be written: the disk is full"):
            sample(corpus, tmp_path / "two", SMALL)
    assert not (tmp_path / "two").exists()
    sample(corpus, tmp_path / "two", SMALL)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_a_finished_plan_is_kept_and_another_needs_replace(tmp_path: Path, corpus: Corpus) -> None:
    out = tmp_path / "plan"
    sample(corpus, out, SMALL)
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    sample(corpus, out, SMALL)
    assert before == {path: path.stat().st_mtime_ns for path in out.iterdir()}
    with pytest.raises(ArtifactError, match=r"holds subsets drawn with another size \(was 8, now 9\)"):
        sample(corpus, out, changed(size=9))
    with pytest.raises(ArtifactError, match="drawn with another train corpus"):
        sample(make_corpus(51), out, SMALL)
    assert sample(corpus, out, changed(size=9), replace=True).settings.size == 9


def test_the_same_subsets_of_the_same_data_have_one_fingerprint(tmp_path: Path, corpus: Corpus) -> None:
    plain = sample(corpus, tmp_path / "a", changed(instances=1))
    held = sample(corpus, tmp_path / "b", changed(instances=1, held_out=1))
    assert plain.fingerprint == held.fingerprint
    renamed = Corpus.from_examples(Example(e.prompt, e.response, f"new {e.id}") for e in corpus)
    assert sample(renamed, tmp_path / "c", changed(instances=1)).fingerprint != plain.fingerprint


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda out: flip(out / "members.npy"), r"members\.npy: was altered after it was written"),
        (lambda out: (out / "train.npy").unlink(), r"train\.npy: is missing"),
        (lambda out: (out / "manifest.json").unlink(), "manifest"),
    ],
)
def test_an_altered_plan_is_refused(tmp_path: Path, corpus: Corpus, harm: Callable[[Path], None], message: str) -> None:
    sample(corpus, tmp_path / "plan", SMALL)
    harm(tmp_path / "plan")
    with pytest.raises(ArtifactError, match=message) as caught:
        open_plan(tmp_path / "plan")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"query_count": 51}, DataError, "instance 0 .*: only 50 examples of the query data .* 51 are needed"),
        ({"train_count": 46}, DataError, "instance 0 .*: only 45 examples of the train data .* 46 are needed"),
        ({"size": 30}, DataError, "instance 0 .*: 30 examples cannot be drawn from 30 training examples"),
        ({"disjoint_instances": True}, DataError, "instance 1 .*: only 10 examples of the train data"),
        (
            {"disjoint_instances": True, "train_count": None},
            DataError,
            "instance 1 .*: only 0 examples of the query data",
        ),
        ({"stratify": "source"}, DataError, "example 'e2': has no source, which stratify=source needs"),
        ({"subsets": 1}, ConfigError, "subsets=1: input should be greater than or equal to 2"),
        ({"kind": "removals"}, ConfigError, "kind=removals .* removals .* or removals_by"),
        ({"removals": 3}, ConfigError, "removals=3: needs kind=removals, but kind is random"),
        ({"removals_by": "source"}, ConfigError, "removals_by=source: needs kind=removals, but kind is random"),
        (
            {**REMOVED, "removals_by": "source", "removals": 3},
            ConfigError,
            "removals_by=source: leaves out one whole source",
        ),
        (
            {**REMOVED, "removals_by": "source"},
            DataError,
            "example 'e2': has no source, which removals_by=source needs",
        ),
        ({"held_out": 4}, ConfigError, "held_out=4: is more than instances=3"),
        ({**REMOVED, "removals": 11, "removal_size": 3}, DataError, "33 examples .* at most 30 can. Lower removals"),
        (
            {**REMOVED, "removals": 1, "removal_size": 30},
            DataError,
            "30 examples .* at most 29 can. Lower removal_size",
        ),
        ({"size": "0%"}, ConfigError, "size='0%': the number of examples must be at least 1, or a percentage"),
        ({"size": "1%"}, DataError, "instance 0 .*: size=1% of 30 training examples is less than one"),
        ({"size": "99%"}, DataError, "instance 0 .*: 30 examples cannot be drawn from 30 training examples"),
        ({"sise": 3}, ConfigError, "'sise' is not a setting here"),
    ],
)
def test_draws_that_cannot_be_are_refused(
    tmp_path: Path, corpus: Corpus, values: dict[str, object], error: type[AirRepError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        sample(corpus, tmp_path / "plan", changed(**values))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "plan").exists()


def test_a_plan_is_compact(tmp_path: Path, corpus: Corpus) -> None:
    plan = sample(corpus, tmp_path / "plan", changed(subsets=1000, instances=1))
    assert (plan.path / "members.npy").stat().st_size < 1000 * 8 + 200
    assert plan.arrays["members"].dtype == np.uint8


@given(seed=st.integers(0, 100), j=st.integers(0, 50), size=st.integers(1, 40), stratified=st.booleans())
@settings(max_examples=50, deadline=None)
def test_a_subset_holds_different_rows_of_its_pool_in_order(seed: int, j: int, size: int, stratified: bool) -> None:
    rows = draw_subset(seed, 0, j, 40, size, STRATA if stratified else None)
    assert (rows.dtype, len(rows)) == (np.int64, size)
    assert (np.diff(rows) > 0).all()
    assert 0 <= rows[0] <= rows[-1] < 40


def test_a_subset_depends_on_seed_instance_and_number_alone() -> None:
    again, first = (draw_subset(3, 1, 2, 100, 10) for _ in range(2))
    assert np.array_equal(first, again)
    others = [draw_subset(*name, 100, 10) for name in ((4, 1, 2), (3, 2, 2), (3, 1, 3), (3, 2, 1))]
    assert not any(np.array_equal(first, other) for other in others)


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=12).map(np.array),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_each_stratum_gets_its_share_rounded_up_or_down(counts: np.ndarray, share: float, seed: int) -> None:
    size = max(1, int(share * counts.sum()))
    places = quotas(np.random.default_rng(seed), counts, size)
    assert places.sum() == size
    assert (places <= counts).all()
    assert (np.abs(places - size * counts / counts.sum()) < 1).all()


@pytest.mark.parametrize("strata", [None, STRATA])
def test_every_row_is_as_likely_as_any_other_even_in_a_rare_stratum(strata: np.ndarray | None) -> None:
    times = np.zeros(40)
    for j in range(2000):
        times[draw_subset(0, 0, j, 40, 10, strata)] += 1
    expected, deviation = 500, np.sqrt(2000 * 0.25 * 0.75)
    assert np.abs(times - expected).max() < 4 * deviation


def test_stratified_subsets_keep_the_proportions_of_the_pool() -> None:
    for j in range(50):
        counts = np.bincount(STRATA[draw_subset(0, 0, j, 40, 20, STRATA)], minlength=6)
        assert counts[2] == 1
        assert counts[5] == 10
        assert counts[0] + counts[1] + counts[3] + counts[4] == 9


def test_names_of_strata_do_not_matter() -> None:
    plain = draw_without_repeats(stream(0, "x"), 40, 10, STRATA)
    assert np.array_equal(plain, draw_without_repeats(stream(0, "x"), 40, 10, STRATA * 7 - 3))


def test_removals_have_no_row_in_common_and_more_of_them_leave_the_first_as_they_are() -> None:
    removals = [draw_removal(5, 0, j, 20, 3) for j in range(7)]
    assert removals[0].tolist() == []
    together = np.concatenate(removals)
    assert len(np.unique(together)) == len(together) == 18
    assert all((np.diff(rows) > 0).all() for rows in removals)
    assert np.array_equal(removals[4], draw_removal(5, 0, 4, 20, 3))
    assert not np.array_equal(removals[4], draw_removal(5, 1, 4, 20, 3))


@pytest.mark.parametrize("count", [4, 12, 60, 688, 2500])
@pytest.mark.parametrize("queries", [None, 1, 7])
@pytest.mark.parametrize("said", [{}, {"held_out": 1, "instances": 2}, {"disjoint_instances": True}, {"size": 2}])
def test_any_data_give_a_plan(tmp_path: Path, count: int, queries: int | None, said: dict[str, int]) -> None:
    asked = None if queries is None else make_corpus(queries, "q")
    if "held_out" in said and (queries == 1 or count == 4):
        pytest.skip("two instances that share nothing need two queries, and six examples")
    few = {"subsets": 3, **said}
    plan = sample(many(count), tmp_path / "plan", few, asked)
    first = plan.instance(0)
    assert 1 <= first.subsets.sizes[0] < len(first.train)
    assert len(first.queries) >= 1
    assert plan.settings.subsets == 3


def test_large_data_give_the_papers_plan() -> None:
    assert (SamplingSettings().instances, SamplingSettings().train_count) == (100, 100_000)
    large = many(110_000)
    found = fitted(SamplingSettings(), large, large)
    assert [getattr(found, name) for name in SHAPE] == [100, 100_000, 10_000, 1_000, 100]


def test_small_data_give_one_instance_of_all_of_them() -> None:
    data = many(688)
    found = fitted(SamplingSettings(), data, data)
    assert [getattr(found, name) for name in SHAPE] == [1, None, 62, 125, 100]
    found = fitted(SamplingSettings(), data, make_corpus(40, "q"))
    assert [getattr(found, name) for name in SHAPE] == [1, None, 40, 137, 100]


def test_what_is_said_stays_and_is_refused_where_it_does_not_fit(tmp_path: Path) -> None:
    said: dict[str, Any] = {"instances": 3, "train_count": 20, "query_count": 5, "size": 4, "subsets": 2}
    data = many(60)
    assert fitted(SamplingSettings(**said), data, data) == SamplingSettings(**said)
    with pytest.raises(DataError, match="100 are needed"):
        sample(data, tmp_path / "plan", {"train_count": 100})
