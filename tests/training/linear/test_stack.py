"""Stacks on planted worlds where each member knows a part."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import sparse
from worlds.small_world import HashAttributor, make_corpus, tree

from airrep import check_attributor
from airrep.attributors import stack as stack_module
from airrep.attributors.methods import METHODS, make_attributor
from airrep.attributors.settings import StackSettings
from airrep.attributors.stack import StackAttributor, beside
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.evaluation.judging import held_out_lds, score_instance
from airrep.index.building import build_index
from airrep.index.index import Index
from airrep.index.workers import Recipe
from airrep.labels.instance import LabelledInstance
from airrep.runtime.settings import Settings
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import exponents
from airrep.training.linear import stack as stacking
from airrep.training.linear.weights import MemberChoice

WIDTH = 6


def _vector(example: Example, part: str) -> np.ndarray:
    """Features that the text decides, of unit deviation."""
    found = hashlib.sha256(f"{part} {example.content_hash}".encode()).digest()
    return np.frombuffer(found[: 2 * WIDTH], np.int16).astype(np.float32) / 2**14


class PartSettings(Settings):
    part: str = "one"
    scale: float = 1.0


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
    part = dataclasses.replace(
        METHODS["tfidf"], name="part", settings=PartSettings, location=(__name__, "PartAttributor")
    )
    monkeypatch.setitem(METHODS, "part", part)


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
ONE, TWO = MemberChoice("part", {"part": "one"}), MemberChoice("part", {"part": "two", "scale": 100.0})
USELESS = MemberChoice("part", {"part": "none"})


def learn_stack(*arguments, **options):
    """A stack whose intervals are drawn quickly."""
    return stacking.learn_stack(*arguments, **{"resamples": 40, **options})


def _lds(stack) -> list[float]:
    return [row["lds"]["lds"] for row in stack.report["rows"]]


def test_members_that_each_know_a_half_make_a_stack_that_beats_both(tmp_path):
    stack = learn_stack([ONE, TWO], [LEARN], [HELD_OUT], tmp_path / "stack", pool="sum")
    ours, *theirs = _lds(stack)
    assert ours > 0.9
    assert ours > max(theirs) + 0.1
    assert stack.report["better"]
    assert stack.report["rows"][0]["name"] == "stack, sum"
    assert {row["name"].split(",")[0] for row in stack.report["rows"][1:]} == {"part (1)", "part (2)"}
    assert stack.report["sentence"].startswith("The stack beats its best member: LDS × 100 +")
    np.testing.assert_allclose([member.weight for member in stack.members], [0.5, 0.5], atol=0.1)


def test_a_useless_member_gets_next_to_no_weight_and_the_stack_is_not_called_better(tmp_path):
    learn, held_out = planted(0, "a", ["one"]), planted(1, "b", ["one"])
    stack = learn_stack([USELESS, ONE], [learn], [held_out], tmp_path / "stack", pool="sum")
    assert stack.members[0].weight < 0.06
    assert not stack.report["better"]
    assert stack.report["sentence"].startswith("The stack is not shown to beat its best member")
    method = make_attributor("stack", {"stack": str(tmp_path / "stack")})
    assert method.caution == stack.report["sentence"]


def test_a_stack_of_one_member_ranks_as_the_member(tmp_path):
    learn_stack([TWO], [LEARN], [HELD_OUT], tmp_path / "stack", pool="sum")
    stack = make_attributor("stack", {"stack": str(tmp_path / "stack")})
    scores = [score_instance(method, HELD_OUT) for method in (stack, TWO.make())]
    np.testing.assert_allclose(scores[0] / scores[0].std(), scores[1] / scores[1].std(), rtol=1e-4, atol=1e-5)


def test_what_the_attributor_scores_is_what_was_judged(tmp_path):
    stack = learn_stack([ONE, MemberChoice("tfidf", {})], [LEARN], [HELD_OUT], tmp_path / "stack")
    method = make_attributor("stack", {"stack": str(tmp_path / "stack")})
    found = held_out_lds([score_instance(method, HELD_OUT)], [HELD_OUT])
    assert found.value == pytest.approx(stack.report["rows"][0]["lds"]["lds"], abs=1e-3)
    assert stack.report["rows"][0]["name"].startswith(f"stack, {method.own_pool}")


def test_an_index_of_a_stack_does_all_that_one_of_a_method_does(tmp_path):
    learn_stack([ONE, MemberChoice("tfidf", {"ngrams": 2})], [LEARN], [HELD_OUT], tmp_path / "stack")
    settings = {"stack": str(tmp_path / "stack")}
    build_index(HELD_OUT.train, tmp_path / "index", "stack", settings=settings, shard_rows=16)
    index, queries = Index(tmp_path / "index"), HELD_OUT.queries
    best = index.top(queries, 3)
    whole = np.concatenate([scores for _, scores in index.scores(queries)], axis=1)
    assert [hits[0].row for hits in best] == whole.argmax(axis=1).tolist()
    groups = index.group_scores(queries, "source", "sum")
    what_if = index.what_if(queries, remove=index.where(source="forum"), pool="sum")
    removed = groups.scores[:, groups.names.index("forum")]
    np.testing.assert_allclose(what_if.change, -removed, rtol=1e-3, atol=1e-3)


def test_stacks_conform_dense_and_sparse_and_work_in_other_processes(tmp_path):
    world = planted(0, "a", ["one"])
    learn_stack([ONE, TWO], [world], [HELD_OUT], tmp_path / "dense")
    learn_stack([ONE, MemberChoice("tfidf", {})], [world], [HELD_OUT], tmp_path / "sparse")
    learn_stack(
        [MemberChoice("stack", {"stack": str(tmp_path / "sparse")}), TWO], [LEARN], [HELD_OUT], tmp_path / "all"
    )
    for name in ("dense", "sparse", "all"):
        settings = {"stack": str(tmp_path / name)}
        check_attributor(lambda settings=settings: make_attributor("stack", settings))
        method = make_attributor("stack", settings)
        method.fit(LEARN.train)
        assert Recipe.of(method).make().fingerprint == method.fingerprint


def test_fingerprints_tell_stacks_with_other_weights_apart(tmp_path):
    for name, parts in (("a", ["one"]), ("b", ["one", "two"])):
        learn_stack([ONE, TWO], [planted(0, "x", parts)], [HELD_OUT], tmp_path / name)
    one, other = (StackAttributor(StackSettings(stack=str(tmp_path / name))) for name in ("a", "b"))
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize("pool", ["attention", "signed-attention"])
def test_attention_is_chosen_where_one_member_of_a_group_decides(tmp_path, pool):
    """The member with the largest score, or with the score of the largest size."""

    def world(seed: int, name: str) -> LabelledInstance:
        plain = planted(seed, name, ["one"])
        rows, queries = ONE.make().encode_train(plain.train), ONE.make().encode_train(plain.queries)
        scores = queries @ rows.T
        members = [scores[:, plain.subsets.members(j)] for j in range(len(plain.subsets))]
        chosen = [np.argmax(exponents(some, pool), axis=1)[:, None] for some in members]
        best = [np.take_along_axis(*one, axis=1)[:, 0] for one in zip(members, chosen, strict=True)]
        return dataclasses.replace(plain, losses=(3 - np.stack(best, axis=1)).astype(np.float32))

    stack = learn_stack([ONE], [world(0, "a")], [world(1, "b")], tmp_path / "stack")
    assert stack.report["learnt_pool"] == pool
    method = make_attributor("stack", {"stack": str(tmp_path / "stack")})
    assert method.own_pool == pool


def test_features_side_by_side_multiply_to_the_weighted_sum():
    generator = np.random.default_rng(0)
    dense, thin = generator.standard_normal((5, 3)).astype(np.float32), sparse.random_array((5, 4), rng=generator)
    joined = beside([dense, sparse.csr_array(thin.astype(np.float32))], [2.0, 3.0])
    assert isinstance(joined, sparse.csr_array)
    assert joined.dtype == np.float32
    expected = np.hstack([2 * dense, 3 * thin.toarray()])
    np.testing.assert_allclose(joined.toarray(), expected, rtol=1e-6)
    assert isinstance(beside([dense, dense], [1.0, 1.0]), np.ndarray)


def test_members_are_read_from_text(tmp_path):
    (tmp_path / "m.yaml").write_text("ngrams: 2\n")
    assert MemberChoice.parse("tfidf") == ("tfidf", {})
    inline = MemberChoice.parse("logra:lm=models/m,rank=4,modules=[a.*,b]")
    assert inline == ("logra", {"lm": "models/m", "rank": 4, "modules": ["a.*", "b"]})
    mixed = MemberChoice.parse(f"tfidf:{tmp_path / 'm.yaml'},min_count=3")
    assert mixed == ("tfidf", {"ngrams": 2, "min_count": 3})
    for text in (":rank=4", "tfidf:a.yaml,b.yaml"):
        with pytest.raises(ConfigError, match=r"^--member .*: expected METHOD, METHOD:key=value"):
            MemberChoice.parse(text)


def test_the_same_request_is_answered_at_once_and_another_is_refused(tmp_path, monkeypatch):
    out = tmp_path / "stack"
    made = learn_stack([ONE, TWO], [LEARN], [HELD_OUT], out)
    before = tree(out)
    with monkeypatch.context() as patch:
        patch.setattr(PartAttributor, "encode_train", None)
        again = learn_stack([ONE, TWO], [LEARN], [HELD_OUT], out)
    assert (again.report, again.members) == (json.loads(json.dumps(made.report)), made.members)
    with pytest.raises(ArtifactError, match="holds a stack made with another pool"):
        learn_stack([ONE, TWO], [LEARN], [HELD_OUT], out, pool="sum")
    assert tree(out) == before
    learn_stack([ONE, TWO], [LEARN], [HELD_OUT], out, pool="sum", replace=True)
    assert tree(out) != before


def test_bad_requests_are_one_line(tmp_path):
    out = tmp_path / "stack"
    with pytest.raises(ConfigError, match="stack: has no member; expected one or more"):
        learn_stack([], [LEARN], [HELD_OUT], out)
    with pytest.raises(ConfigError, match="--pool mean: is not for stacks"):
        learn_stack([ONE], [LEARN], [HELD_OUT], out, pool="mean")
    with pytest.raises(DataError, match=r"^instance a: its query 'a-q0' was learnt from"):
        learn_stack([ONE], [LEARN], [LEARN], out)
    with pytest.raises(DataError, match="member 'part': scores all training examples alike"):
        learn_stack([MemberChoice("part", {"scale": 0.0})], [LEARN], [HELD_OUT], out)
    upside_down = dataclasses.replace(LEARN, losses=-LEARN.losses)
    with pytest.raises(DataError, match="no member's scores rise with the labels"):
        learn_stack([ONE, TWO], [upside_down], [HELD_OUT], out)
    with pytest.raises(ArtifactError, match="does not exist"):
        make_attributor("stack", {"stack": str(out)}).encode_train(Corpus.from_examples([]))
    with pytest.raises(ConfigError, match="stack: needs a stack"):
        stack_module.StackAttributor()
