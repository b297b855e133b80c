"""Clean: planted errors are found, and how often what is told was planted."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from worlds.small_world import HashAttributor, make_corpus

import airrep
from airrep.answers import clean as module
from airrep.answers.clean import CleanResult, _above
from airrep.answers.likeness.neighbours import Neighbours, disagreement, robust_deviations, vote
from airrep.arrays import DenseFeatures, descending, reaches, unit_rows
from airrep.corpus.corpus import Example
from airrep.errors import ArtifactError, ConfigError
from airrep.reports.answers import answer_tables

TOPICS = ("river", "engine", "violin", "tax")
PER = 40


class WordsOfTopics(HashAttributor):
    """Stands for a sentence encoder: a direction for each topic, and a little of each word's own."""

    def __init__(self, view: str) -> None:
        super().__init__()
        self.view = view

    def encode_train(self, examples: Sequence[Example], on_rows: object = None) -> DenseFeatures:
        return np.array([self._vector(getattr(example, self.view)) for example in examples], np.float32)

    def _vector(self, text: str) -> np.ndarray:
        words = text.lower().split()
        found = np.array([float(sum(topic in word for word in words)) for topic in TOPICS] + [0.0] * 60)
        if not found.any():
            found[4:] = np.random.default_rng(len(text)).normal(size=60)
        own = np.random.default_rng([ord(sign) for sign in text]).normal(size=64)
        return found / np.linalg.norm(found) + 0.03 * own


@pytest.fixture(autouse=True)
def _topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "make_attributor", lambda _, settings: WordsOfTopics(settings["view"]))


def topics(number: int) -> Example:
    topic = TOPICS[number % len(TOPICS)]
    prompt = f"tell of the {topic} w{number} {' '.join(f'p{number}x{place}' for place in range(20))}"
    return Example(prompt, f"the {topic} is told of r{number}", f"e{number}", label=topic, source="books")


def build(examples: list[Example], folder: Path) -> airrep.Index:
    return airrep.build_index(airrep.Corpus.from_examples(examples), folder / "index", HashAttributor(), shard_rows=50)


def told(result: CleanResult, kind: str) -> set[str]:
    return {finding.example.id for finding in result.findings if finding.kind == kind}


def test_what_is_planted_is_found_and_nothing_else(tmp_path: Path) -> None:
    examples = [topics(number) for number in range(PER * len(TOPICS))]
    for number in (3, 50, 121):
        one = examples[number]
        examples[number] = Example(one.prompt, one.response, one.id, label=TOPICS[(number + 1) % 4])
    for number in (8, 77):
        one, other = examples[number], examples[number + 1]
        examples[number] = Example(one.prompt, other.response, one.id, label=one.label)
    copies = [Example(examples[n].prompt.upper(), f"{examples[n].response}!", f"copy {n}", "tax") for n in (10, 60)]
    copies = [Example(one.prompt, one.response, one.id, label=examples[int(one.id[5:])].label) for one in copies]
    odd = [Example("zzz qq", "uu v", "odd", label="tax")]
    index = build([*examples, *copies, *odd], tmp_path)
    result = airrep.clean(index)
    assert told(result, "label") - {"odd"} == {"e3", "e50", "e121"}
    assert told(result, "answer") - {"odd"} == {"e8", "e77"}
    assert told(result, "duplicate") == {"copy 10", "copy 60"}
    assert "odd" in told(result, "outlier")
    assert result.checked == ("label", "answer", "duplicate", "outlier")
    assert result.skipped == {"harmful": "there are no queries"}
    reasons = {finding.example.id: finding.reason for finding in result.findings if finding.kind == "label"}
    assert reasons["e3"].startswith("of the nearest prompts 100% have the label 'tax', 0% '")
    assert "with 'e10'" in next(one.reason for one in result.findings if one.example.id == "copy 10")
    assert result.rows == sorted(set(result.rows))
    assert CleanResult.read(result.save(tmp_path / "run")) == result


def test_lists_part_the_examples(tmp_path: Path) -> None:
    examples = [topics(number) for number in range(40)]
    examples.append(Example(examples[5].prompt, examples[5].response, "again", label="river", metadata={"année": 3}))
    index = build(examples, tmp_path)
    index = airrep.Index(tmp_path / "index", HashAttributor())
    result = airrep.clean(index, kinds=["duplicate"])
    keep, drop = result.write_lists(index, tmp_path / "lists")
    assert airrep.read_corpus(keep) == airrep.Corpus.from_examples(examples[:40])
    record = json.loads(drop.read_text())
    assert record.pop("dropped_for")[0]["kind"] == "duplicate"
    assert record == examples[40].to_dict()
    assert airrep.read_corpus(drop)[0].id == "again"
    with pytest.raises(ConfigError, match="is not the index that was cleaned, or has changed since"):
        result.write_lists(index.delete([0]), tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with pytest.raises(ArtifactError, match="exists already"):
        result.write_lists(index, tmp_path / "lists")


def test_deleted_and_filtered_rows_are_not_looked_at(tmp_path: Path) -> None:
    examples = [topics(number) for number in range(8)]
    again = [Example(one.prompt, one.response, f"again {one.id}", label="x", source="forum") for one in examples]
    index = build([*examples, *again], tmp_path).delete([8])
    result = airrep.clean(index, kinds=["duplicate"], where="id != 'again e1'")
    assert told(result, "duplicate") == {f"again e{number}" for number in range(2, 8)}
    assert result.examples == 14
    assert {finding.row for finding in result.findings} == set(range(10, 16))
    few = airrep.clean(index, where="source == 'books'")
    assert few.skipped["label"] == "only 8 examples can be checked; at least 12 are needed"
    assert few.skipped["outlier"] == "only 8 examples can be checked; at least 22 are needed"
    one = airrep.clean(index, where="id == 'e1'")
    assert one.skipped["label"].startswith("only 1 example can be")
    assert next(iter(answer_tables(one))).caption == "0 of 1 example."


def test_parts_of_one_record_are_no_duplicates_of_each_other(tmp_path: Path) -> None:
    """Each rejected answer was told as a duplicate of the chosen one to the same long prompt."""
    words = [f"{place} " + " ".join(f"w{place}x{number}" for number in range(30)) for place in range(20)]
    pairs = [{"prompt": text, "chosen": "It is so.", "rejected": "It is not."} for text in words]
    for name, records in (("with", [{**pair, "id": f"r{n}"} for n, pair in enumerate(pairs)]), ("without", pairs)):
        corpus = airrep.Corpus.from_records([*records, *pairs[:1]], preferences="both")
        index = airrep.build_index(corpus, tmp_path / name, HashAttributor())
        found = airrep.clean(index, kinds=["duplicate"]).findings
        assert sorted((one.row, one.value) for one in found) == [(40, 1.0), (41, 1.0)]


def test_what_harms_many_queries_is_found(tmp_path: Path) -> None:
    class Hub(HashAttributor):
        def _features(self, example: Example) -> np.ndarray:
            found = super()._features(example)
            found[0] = -30.0 if example.id == "e3" else 1.0
            return found

    index = airrep.build_index(make_corpus(50), tmp_path / "index", Hub())
    result = airrep.clean(index, make_corpus(6, "q"), kinds=["harmful"])
    assert [(one.row, one.value, one.reason) for one in result.findings] == [(3, 1.0, "harms 100% of the queries")]


def test_bad_questions_are_told(tmp_path: Path) -> None:
    index = build([topics(number) for number in range(40)], tmp_path)
    assert airrep.clean(index, kinds="duplicate") == airrep.clean(index, kinds=["duplicate"])
    with pytest.raises(ConfigError, match="kind 'typo' cannot be chosen here. Choose from label, answer"):
        airrep.clean(index, kinds=["typo"])
    with pytest.raises(ConfigError, match="has no field 'tag'; it has id, prompt"):
        airrep.clean(index, label="tag")
    for name, value in (("own_share", 0.0), ("duplicate", 1.5), ("outlier", float("nan")), ("neighbours", 1)):
        with pytest.raises(ConfigError, match=f"clean: {name}="):
            airrep.clean(index, settings={name: value})
    told = "nothing can be checked: label: the field 'source' has fewer than two values; harmful: there are no queries"
    with pytest.raises(ConfigError, match=told):
        airrep.clean(index, kinds=["label", "harmful"], label="source")


def test_neighbours_equal_sorting_all_cosines() -> None:
    vectors = unit_rows(np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32))
    vectors[20:40] = vectors[0]  # more copies than neighbours
    near = Neighbours.of(vectors, 5)
    cosines = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    np.fill_diagonal(cosines, -2)
    assert not (near.places == np.arange(60)[:, None]).any()
    np.testing.assert_allclose(near.cosines, -np.sort(-cosines, axis=1)[:, :5], atol=1e-6)


def test_votes_and_disagreement_equal_their_definitions() -> None:
    random = np.random.default_rng(1)
    prompts, responses = (unit_rows(random.normal(size=(30, 6)).astype(np.float32)) for _ in range(2))
    near = Neighbours.of(prompts, 4)
    labels: list[str | None] = [None if number % 7 == 0 else "ab"[number % 2] for number in range(30)]
    votes = vote(labels, near)
    for place, (others, cosines) in enumerate(zip(near.places, near.cosines, strict=True)):
        weight = {"a": 0.0, "b": 0.0}
        for other, cosine in zip(others.tolist(), cosines.tolist(), strict=True):
            if labels[other] is not None:
                weight[str(labels[other])] += max(cosine, 0.0)
        total = sum(weight.values())
        if labels[place] is None or total == 0:
            assert np.isnan(votes.own[place])
        else:
            assert votes.own[place] == pytest.approx(weight[str(labels[place])] / total)
        if total:
            assert votes.most[place] == pytest.approx(max(weight.values()) / total)
            assert weight[str(votes.best[place])] == max(weight.values())
        alike = np.mean([responses[a] @ responses[b] for a in others for b in others if a != b])
        own = np.mean([responses[place] @ responses[b] for b in others])
        fit = np.mean([prompts[b] @ responses[b] for b in others]) - prompts[place] @ responses[place]
        assert disagreement(prompts, responses, near)[place] == pytest.approx(alike - own + fit, abs=1e-6)


def test_robust_deviations() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 100.0])
    np.testing.assert_allclose(robust_deviations(values), (values - 3) / 1.4826)
    np.testing.assert_allclose(robust_deviations(np.ones(4)), 0)
    alike = np.array([0.0] * 60 + [0.05] * 39 + [0.9])  # most are the median
    assert robust_deviations(alike)[-1] > 20
    rounded = jittered(np.ones(50), 0).astype(np.float64) - 1  # deviations of rounding alone are none
    assert np.abs(robust_deviations(rounded)).max() < 1e-4
    assert _above(robust_deviations(np.append(rounded, 0.3)), 4.0) == [50]
    assert descending(np.array([0.6, 1.0, 1.0 - 1e-9, 1.0 + 1e-9, 0.8])).tolist() == [1, 2, 3, 4, 0]


def test_what_was_taken_for_templates_is_told(tmp_path: Path) -> None:
    """More than 10 near copies of a text passed for a template, and no word was said of it."""
    head, pasted = " ".join(f"h{place}" for place in range(20)), [f"w{place}" for place in range(40)]
    examples = [Example(f"{head} p{n}", f"r{n} s{n} t{n} u{n}", f"e{n}") for n in range(20)]
    copies = [" ".join([*pasted[:place], "else", *pasted[place + 1 :]]) for place in range(5, 35, 2)]
    examples.append(Example(" ".join(pasted), "...", "copied"))
    examples += [Example(one, "...", f"copy {n}") for n, one in enumerate(copies)]
    result = airrep.clean(build(examples, tmp_path), kinds=["duplicate"])
    assert told(result, "duplicate") == {f"copy {number}" for number in range(len(copies))}
    assert result.templates is not None
    assert (result.templates.commonest, result.templates.commonest_texts) == (" ".join(f"h{n}" for n in range(8)), 20)
    assert CleanResult.read(result.save(tmp_path / "run")) == result
    assert result.to_dict()["templates"]["texts"] == 20 + 1 + len(copies)
    assert airrep.clean(build(examples[:5], tmp_path / "few"), kinds=["duplicate"]).templates is None


def test_scripts_without_spaces_have_near_duplicates_and_leaks(tmp_path: Path) -> None:
    text = "春天来了，公园里的樱花都开了，很多人带着孩子去拍照，大家都非常高兴，晚上一起在河边的小店里吃饭唱歌"
    others = [Example("问", chr(0x4E00 + number) * 30, f"other {number}") for number in range(8)]
    index = build(
        [Example("问", text, "first"), Example("问", text.replace("拍照", "照相"), "again"), *others], tmp_path
    )
    assert told(airrep.clean(index, kinds=["duplicate"]), "duplicate") == {"again"}
    leaked = airrep.audit(
        index, [Example("请说", f"我说{text}吗", "leaked"), Example("请说", "无关的回答在这里", "new")]
    )
    assert [item.verdict == "clean" for item in leaked.items] == [False, True]


def jittered(values: np.ndarray, seed: int) -> np.ndarray:
    """Cosines as another processor has them."""
    return (values * (1 + np.random.default_rng(seed).uniform(-1e-6, 1e-6, values.shape))).astype(np.float32)


@pytest.mark.parametrize("seed", range(20))
def test_votes_at_a_threshold_do_not_turn_on_rounding(seed: int) -> None:
    """Two of ten equal neighbours have a label, or five and five two others."""
    places = np.tile(np.arange(1, 11), (11, 1))
    labels = ["a", "a", "a", *"bbbbbbbb"]
    votes = vote(labels, Neighbours(places, jittered(np.full((11, 10), 0.9), seed)))
    assert reaches(-votes.own[:1], -0.2).all()
    even = vote(["x", *"cbcbcbcbcb"], Neighbours(places, jittered(np.full((11, 10), 0.9), seed)))
    assert even.best[0] == "b"
    assert reaches(even.most[:1], 0.5).all()
