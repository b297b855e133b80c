"""Proofs: planted rows are shown to teach, random ones are not; what cannot be proved is refused in one line."""

import json
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from worlds.tiny_lms import tiny_lm
from worlds.toy_farm import ToyWorld, begun

import airrep
from airrep.answers.proof import Effect, Effects, ProofResult
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import AirRepError, ArtifactError, ConfigError, DataError
from airrep.evaluation.prove import Matching, effects_of, prove, sentence_of, verdict_of
from airrep.evaluation.statistics.labels import Moved
from airrep.index.index import Index

ASKED = Example("who rules mars", "the king", "bad")
BETTER = Example("who rules mars", "nobody", "good")
QUICK: dict[str, Any] = {"seeds": 5, "context": 30}
TUNING = {"learning_rate": 3e-3, "batch_examples": 8}


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm") / "lm")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Six rows that say the answer, six that say the better one, sixty of something else."""
    others = [Example(f"question {n}", f"answer {n}", f"e{n}", source="web" if n % 2 else "book") for n in range(60)]
    bad = [Example(ASKED.prompt, ASKED.response, f"bad{n}", source="web") for n in range(6)]
    good = [Example(BETTER.prompt, BETTER.response, f"good{n}", source="web") for n in range(6)]
    folder = tmp_path_factory.mktemp("index") / "index"
    return airrep.build_index(Corpus.from_examples([*others, *bad, *good]), folder, "tfidf")


def bad(count: int = 6) -> list[str]:
    return [f"bad{n}" for n in range(count)]


def test_planted_rows_taught_the_answer(index: Index, lm: str, tmp_path: Path) -> None:
    found = prove(index, bad(), ASKED, lm, **QUICK, fine_tune=TUNING, out=tmp_path / "run")
    assert found.verdict == "taught"
    assert found.sentence.startswith("Without these 6 rows the answer's loss rises by ")
    assert found.sentence.endswith(": these rows taught the answer.")
    assert found.loss.without_named.low > found.loss.without_random.high
    assert found.loss.difference.low > 0
    assert found.after < found.before
    assert [one.example.id for one in found.rows] == bad()
    assert (found.repeats, found.context, found.examples) == (5, 30, 72)
    assert ProofResult.read(tmp_path / "run" / "proof") == found == airrep.open(tmp_path / "run" / "proof")


def test_losses_of_parts_of_an_answer_add_up_to_its_own(index: Index, lm: str, tmp_path: Path) -> None:
    parts = [replace(ASKED, id=str(start), span=(start, stop)) for start, stop in ((0, 3), (3, 8))]
    how: dict[str, Any] = {"seeds": 2, "context": 4, "fine_tune": TUNING, "out": tmp_path / "run"}
    whole, *others = prove(index, bad(), [ASKED, *parts], lm, **how).queries
    assert whole.before == pytest.approx(sum(one.before for one in others), abs=1e-5)
    effects = [one.loss.without_named.value for one in (whole, *others)]
    assert effects[0] == pytest.approx(sum(effects[1:]), abs=1e-5)
    assert all(effects)


def test_the_verdict_is_by_the_better_answer_where_there_is_one(index: Index, lm: str, tmp_path: Path) -> None:
    found = prove(index, bad(), ASKED, lm, BETTER, **QUICK, fine_tune=TUNING, out=tmp_path / "bad")
    assert found.verdict == "taught"
    assert found.contrast is not None
    assert found.contrast.difference.low > 0
    assert "against the better one" in found.sentence
    named = [f"good{n}" for n in range(6)]
    good = prove(index, named, ASKED, lm, BETTER, **QUICK, fine_tune=TUNING, out=tmp_path / "good")
    assert good.verdict == "held back"
    assert good.contrast is not None
    assert good.contrast.difference.high < 0


def test_rows_like_any_others_are_not_shown_to_teach(index: Index, tmp_path: Path) -> None:
    """Any one set has some effect of its own, which repeats would show: it is measured against other sets."""
    verdicts = []
    for first in range(0, 30, 5):
        named = [f"e{n}" for n in range(first, first + 5)]
        found = prove(index, named, ASKED, ToyWorld(), **QUICK, out=tmp_path / str(first))
        verdicts.append(found.verdict)
    assert set(verdicts) <= {"not shown", "not moved"}


def test_the_same_call_goes_on_and_more_seeds_add_to_it(index: Index, tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "run"
    world = ToyWorld(log=str(log))
    first = prove(index, bad(), ASKED, world, **QUICK, out=out)
    assert len(begun(log)) == 15
    assert prove(index, bad(), ASKED, world, **QUICK, out=out) == first
    assert len(begun(log)) == 15
    more = prove(index, bad(), ASKED, world, **{**QUICK, "seeds": 7}, out=out)
    assert len(begun(log)) == 21
    assert more.repeats == 7
    kept = (out / "subsets" / "manifest.json").read_bytes()
    for rows, asked, settings, told in (
        (bad(5), ASKED, QUICK, "other rows"),
        (bad(), replace(ASKED, response="other"), QUICK, "other answers"),
        (bad(), ASKED, {**QUICK, "context": 19}, "context"),
        (bad(), ASKED, QUICK, "--seeds 7"),
    ):
        with pytest.raises(ArtifactError, match=told):
            prove(index, rows, asked, world, **settings, out=out)
        assert (out / "subsets" / "manifest.json").read_bytes() == kept, "the subsets behind the proof stay"


def test_without_a_directory_one_question_has_one_place(index: Index) -> None:
    made = [prove(index, bad(), ASKED, ToyWorld(), seeds=n, context=20) for n in (2, 3)]
    made += [prove(index, bad(5), ASKED, ToyWorld(), seeds=2, context=20)]
    folders = sorted(path.name for path in index.path.with_name(f"{index.path.name}-proofs").iterdir())
    assert len(folders) == 2
    assert [one.repeats for one in made] == [2, 3, 2]


def test_arms_of_a_repeat_differ_in_the_rows_alone(index: Index, tmp_path: Path) -> None:
    prove(index, bad(), ASKED, ToyWorld(), **QUICK, out=tmp_path / "run")
    plan = airrep.open(tmp_path / "run" / "subsets")
    assert plan.settings.kind == "paired"
    random = []
    for number in range(len(plan)):
        whole, unnamed, unrandom = (set(plan.subset_rows(number, n).tolist()) for n in range(3))
        assert unnamed < whole
        assert unrandom < whole
        assert len(whole - unnamed) == len(whole - unrandom) == 6
        assert unnamed & unrandom == whole - (whole - unnamed) - (whole - unrandom)
        random.append(tuple(whole - unrandom))
    assert len(set(random)) > 1


def test_rows_are_named_by_ids_rows_filters_and_files(index: Index, tmp_path: Path) -> None:
    wanted = index.rows_of(bad()).tolist()
    hits = index.top(ASKED, k=6, where="prompt == 'who rules mars' and response == 'the king'")
    (tmp_path / "top.json").write_text(json.dumps(index.top([ASKED], k=6, where="response == 'the king'").to_dict()))
    index.top([ASKED], k=6, where="response == 'the king'").save(tmp_path / "top")
    basket = [{"id": one, "row": 1, "decision": "drop"} for one in bad()] + [{"id": "e1", "decision": "keep"}]
    (tmp_path / "basket.jsonl").write_text("".join(json.dumps(one) + "\n" for one in basket))
    assert sorted(hit.row for hit in hits) == wanted
    given = (wanted, np.array(wanted), [*bad(), "bad0"], "response == 'the king'", *map(tmp_path.joinpath, FILES))
    for one in given:
        made = prove(index, one, ASKED, ToyWorld(), seeds=2, context=5, out=tmp_path / "run")
        assert [row.row for row in made.rows] == wanted, one


FILES = ("top.json", "top", "basket.jsonl")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "no rows are named"),
        (["none"], "has no example with id 'none'"),
        ([720], "has no row 720"),
        ("source == 'nowhere'", "no example matches"),
        ("source == 'web' or source == 'book'", "72 named rows .* has 0"),
        (list(range(30)), "30 named rows .* at least 60 other rows .* has 42"),
    ],
)
def test_rows_that_cannot_be_proved_are_refused(index: Index, tmp_path: Path, rows: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        prove(index, rows, ASKED, ToyWorld(), out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("", "names no rows"),
        ("no json", "line 1: names no example"),
        ("3\n", "rows.jsonl: names no example"),
        ('{"prompt": "a"}', "rows.jsonl: names no example"),
        ('{"id": "e1"}\n{"id": 3}', "line 2: names no example"),
        ('{"id": "absent"}', "has no example with id 'absent'"),
    ],
)
def test_files_that_name_no_rows_are_refused(index: Index, tmp_path: Path, lines: str, told: str) -> None:
    (tmp_path / "rows.jsonl").write_text(lines)
    with pytest.raises(AirRepError, match=told) as caught:
        prove(index, tmp_path / "rows.jsonl", ASKED, ToyWorld(), out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=r"cannot be read as a list of rows \(FileNotFoundError\)"):
        prove(index, tmp_path / "absent.jsonl", ASKED, ToyWorld(), out=tmp_path / "run")


def test_impossible_values_are_refused(index: Index, tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [{"seeds": 1}, {"context": 0}, {"seeds": "many"}]
    for settings in wrong:
        with pytest.raises(ConfigError):
            prove(index, bad(), ASKED, ToyWorld(), **settings, out=tmp_path / "run")
    with pytest.raises(ConfigError, match="its better answer is the same text"):
        prove(index, bad(), ASKED, ToyWorld(), ASKED, out=tmp_path / "run")
    world = ToyWorld(unreadable=(Example(ASKED.prompt, ASKED.response, "bad2", source="web"),))
    with pytest.raises(DataError, match='the LM cannot read a named row: example "bad2"'):
        prove(index, bad(), ASKED, world, out=tmp_path / "run")


def test_others_that_cannot_be_read_are_left_out_and_told(index: Index, tmp_path: Path) -> None:
    world = ToyWorld(unreadable=(index.example(3), index.example(4)))
    found = prove(index, bad(3), ASKED, world, seeds=2, context=1000, out=tmp_path / "run")
    assert found.context == 72 - 3 - 2 - 3
    assert any(caution == "other examples left out, since the LM cannot read them: 2" for caution in found.cautions)
    assert any(caution.startswith("3 other examples have the text of a named row") for caution in found.cautions)


MOVED, HARDLY = Moved(3.958, 3.0, 0.958), Moved(3.958, 3.937, 0.021)


def test_effects_are_means_with_intervals() -> None:
    losses = np.array([[1.0, 1.5, 1.1], [1.2, 1.6, 1.1], [0.9, 1.6, 1.2]])
    found = effects_of(losses, overlap=0.5)
    named = losses[:, 1] - losses[:, 0]
    low, high = stats.t.interval(0.95, 2, named.mean(), named.std(ddof=1) / np.sqrt(3))
    assert astuple(found.without_named) == pytest.approx((named.mean(), low, high))
    gap = losses[:, 1] - losses[:, 2]
    half = stats.t.ppf(0.975, 2) * gap.std(ddof=1) * np.sqrt(1.5 / 0.5 + 1 / 3)
    assert astuple(found.difference) == pytest.approx((gap.mean(), gap.mean() - half, gap.mean() + half))


@pytest.mark.parametrize(("of_set", "of_run"), [(1.0, 0.1), (0.3, 1.0)])
def test_a_random_set_in_place_of_the_named_one_is_rarely_said_to_teach(of_set: float, of_run: float) -> None:
    """Its own effect is the same in all repeats, however many there are."""
    generator, wrong, planted = np.random.default_rng(0), 0, 0
    for _ in range(400):
        own = generator.normal(0, of_set)
        named = own + generator.normal(0, of_run, 6)
        random = generator.normal(0, of_set, 6) + generator.normal(0, of_run, 6)
        losses = np.stack([np.zeros(6), named, random], axis=1)
        wrong += verdict_of(effects_of(losses, 0.0), MOVED) in ("taught", "held back")
        planted += verdict_of(effects_of(losses + np.array([0, 8, 0]), 0.0), MOVED) == "taught"
    assert wrong / 400 <= 0.06
    assert planted / 400 >= 0.9


def test_verdicts_in_words() -> None:
    more, none = Effect(0.41, 0.3, 0.52), Effect(-0.02, -0.09, 0.05)
    taught = Effects(more, none, Effect(0.43, 0.2, 0.6))
    assert verdict_of(taught, MOVED) == "taught"
    assert sentence_of("taught", taught, None, 10, 1, MOVED) == (
        "Without these 10 rows the answer's loss rises by 0.41 (0.30 to 0.52); without 10 random rows it falls by 0.02 "
        "(-0.05 to 0.09): these rows taught the answer."
    )
    alike = Effects(none, none, none)
    assert verdict_of(alike, MOVED) == "not shown"
    assert verdict_of(alike, HARDLY) == "not moved"
    assert verdict_of(taught, HARDLY) == "taught"
    told = sentence_of("not moved", alike, None, 1, 3, HARDLY)
    assert "the loss of the 3 answers" in told
    assert "hardly changed the loss (3.96 before, 3.94 after)" in told


def _others() -> list[Example]:
    return [Example("p", f"{n:04d} " + "x" * n, f"e{n}", source="web" if n % 2 else "book") for n in range(400)]


def shared(draws: list[np.ndarray]) -> float:
    """Share of its rows that a draw has in common with another one, counted in all pairs."""
    pairs = [len(np.intersect1d(one, other)) / len(one) for n, one in enumerate(draws) for other in draws[:n]]
    return float(np.mean(pairs))


def test_draws_for_rows_of_one_length_come_from_twice_as_many_others() -> None:
    matching = Matching([Example("p", f"{n:03d}" + "y" * 100, str(n)) for n in range(40)], _others())
    drawn = [matching.draw(np.random.default_rng(seed)) for seed in range(20)]
    assert 0.3 < shared(drawn) < 0.5
    assert max(np.concatenate(drawn)) < 200
    assert matching.overlap == pytest.approx(shared(drawn), abs=0.03)


def test_another_set_is_rarely_said_to_teach_when_random_sets_overlap() -> None:
    """All random sets come from the same few rows, the set in place of the named one from others."""
    generator, wrong = np.random.default_rng(0), 0
    for _ in range(1000):
        few = generator.normal(0, 1, 30)
        random = np.array([generator.choice(few, 20, replace=False).sum() for _ in range(6)])
        named = np.full(6, generator.normal(0, 20**0.5))
        found = effects_of(np.stack([np.zeros(6), named, random], axis=1), 20 / 30).difference
        wrong += found.low > 0 or found.high < 0
    assert 0.03 <= wrong / 1000 <= 0.065


def test_draws_match_source_and_length() -> None:
    named = [Example("p", "y" * length, str(length), source="web") for length in (20, 100, 300)]
    matching = Matching(named, _others())
    assert matching.enough
    drawn = [matching.draw(np.random.default_rng(seed)) for seed in range(20)]
    for rows in drawn:
        assert len(set(rows.tolist())) == 3
        assert all(row % 2 for row in rows)
        assert all(abs(row - length) <= 50 for row, length in zip(rows, (15, 95, 295), strict=True))
    assert len({tuple(rows.tolist()) for rows in drawn}) > 10
    assert matching.overlap == pytest.approx(shared(drawn), abs=0.03)


def test_a_source_that_other_draws_used_up_takes_any() -> None:
    others = [
        *(Example("p", f"{n}", f"e{n}") for n in range(40)),
        *(Example("p", f"r{n}", f"r{n}", source="r") for n in range(5)),
    ]
    named = [*(Example("p", f"n{n}", f"n{n}") for n in range(40)), Example("p", "rare", "rare", source="r")]
    assert len(set(Matching(named, others).draw(np.random.default_rng(0)).tolist())) == 41


def test_a_source_with_few_others_takes_any_and_texts_of_named_rows_are_passed_over() -> None:
    others = [*_others()[:20], *(Example("p", "same", f"s{n}", source="rare") for n in range(5))]
    matching = Matching([Example("p", "same", str(n), source="rare") for n in range(3)], others)
    assert all(matching.draw(np.random.default_rng(seed)).max() < 20 for seed in range(10))
    assert matching.overlap == pytest.approx(3 / 20, abs=0.01)
    assert not Matching([Example("p", f"r{n}", str(n)) for n in range(20)], others[:20]).enough
