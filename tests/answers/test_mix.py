"""Mix: weights of sources, their intervals, and configurations."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from worlds.small_world import HashAttributor, make_corpus, stored_scores

import airrep
from airrep.answers.mix import MixResult, drawn_rows, write_axolotl
from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, ConfigError
from airrep.reports.answers import answer_tables


def weights(result: MixResult) -> dict[str, float]:
    return {one.name: one.weight for one in result.sources}


def test_weights_are_shares_of_the_best(index: airrep.Index) -> None:
    queries = make_corpus(30, "q")
    result = airrep.mix(index, queries, top=0.2)
    sources = [example.source for shard in index.shards for example in shard.examples]
    rows = np.array([row for row, source in enumerate(sources) if source is not None])
    count = round(0.2 * len(rows))
    best = rows[np.argsort(-stored_scores(index, queries)[:, rows], axis=1)[:, :count]]
    shares = {
        name: np.mean([[sources[row] == name for row in one] for one in best], axis=1) for name in ("forum", "books")
    }
    assert result.top == count
    for one in result.sources:
        assert one.weight == pytest.approx(shares[one.name].mean())
        assert one.examples == sum(source == one.name for source in sources)
        assert one.share == pytest.approx(one.examples / len(rows))
        assert one.lift == pytest.approx(one.weight / one.share)
        error = 1.96 * shares[one.name].std() / np.sqrt(30)  # the bootstrap's interval is near that of the mean
        assert one.low == pytest.approx(one.weight - error, abs=0.3 * error)
        assert one.high == pytest.approx(one.weight + error, abs=0.3 * error)
    assert sum(weights(result).values()) == pytest.approx(1)
    assert result.without == sources.count(None) > 0
    assert airrep.mix(index, queries, top=0.2, where="source == 'forum' or source == 'books'").without == 0
    assert airrep.mix(index, queries, top=0.2) == result
    assert airrep.mix(index, queries, top=0.2, seed=1) != result


class ByFirstSource(HashAttributor):
    """Scores 1 for the source books, and the same 0 for all others."""

    def encode_train(self, examples: Sequence[Example], on_rows: object = None) -> DenseFeatures:
        return np.array([[float(one.source == "books")] + [0.0] * 15 for one in examples], np.float32)

    def encode_queries(self, examples: Sequence[Example], on_rows: object = None) -> DenseFeatures:
        return np.array([[1.0] + [0.0] * 15 for _ in examples], np.float32)


def test_ties_count_in_equal_parts_whatever_their_order(tmp_path: Path) -> None:
    """10 books score 1, 30 of the forum and 10 letters 0: of the best 20, 10 places go to forum and letters, 3 to 1."""
    names = ["forum"] * 30 + ["books"] * 10 + ["letters"] * 10
    for number, order in enumerate((names, names[::-1])):
        corpus = airrep.Corpus.from_examples(Example(f"p{n}", "r", f"e{n}", source=one) for n, one in enumerate(order))
        index = airrep.build_index(corpus, tmp_path / str(number), ByFirstSource(), shard_rows=7)
        result = airrep.mix(index, make_corpus(3, "q"), top=0.4)
        assert weights(result) == pytest.approx({"books": 0.5, "forum": 0.375, "letters": 0.125})
        known = 0.025 ** (1 / 3)  # three queries that agree: the exact interval of a share of 1, and of 0
        ends = (result.sources[0].low, result.sources[0].high)
        assert ends == pytest.approx((known / 2, known / 2 + 1 - known))


class Tiny(HashAttributor):
    """The same scores, times a millionth of a millionth."""

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        return super().encode_queries(examples, on_rows) * np.float32(1e-12)


def test_weights_do_not_depend_on_the_size_of_scores(tmp_path: Path, queries: airrep.Corpus) -> None:
    plain, tiny = (
        airrep.build_index(make_corpus(100), tmp_path / method.__name__, method()) for method in (HashAttributor, Tiny)
    )
    assert weights(airrep.mix(tiny, queries, top=0.2)) == weights(airrep.mix(plain, queries, top=0.2))


def test_one_query_says_little_of_others(index: airrep.Index, queries: airrep.Corpus) -> None:
    (table,) = answer_tables(airrep.mix(index, queries[:1], top=0.01))
    assert table.caption.startswith("Weight: share of the top 1 example for a query, mean of 1 query.")
    for source in airrep.mix(index, queries[:1], top=0.2).sources:
        assert source.high - source.low > 0.9
    for source in airrep.mix(index, queries, top=1).sources:  # all examples count for every query: no chance
        assert source.low == source.weight == source.high == pytest.approx(source.share)


def test_configurations_can_be_read(index: airrep.Index, queries: airrep.Corpus, tmp_path: Path) -> None:
    result = airrep.mix(index, queries, by="label", top=0.5)
    plain = yaml.safe_load(result.to_yaml())
    assert plain["by"] == "label"
    assert plain["weights"] == pytest.approx(weights(result), abs=1e-3)
    assert sum(plain["weights"].values()) == pytest.approx(1, abs=1e-9)
    arguments = yaml.safe_load(result.to_llama_factory())
    assert arguments["mix_strategy"] == "interleave_under"
    named = arguments["dataset"].split(",")
    shares = [float(share) for share in arguments["interleave_probs"].split(",")]
    assert dict(zip(named, shares, strict=True)) == plain["weights"]
    assert sum(shares) == pytest.approx(1, abs=1e-9)
    assert result.to_dict()["sources"][0]["lift"] == result.sources[0].lift
    assert MixResult.read(result.save(tmp_path / "run")) == result


def test_weights_of_many_sources_sum_to_one_and_none_is_below_zero(index: airrep.Index, queries: airrep.Corpus) -> None:
    result = airrep.mix(index, queries, by="label", top=0.5)
    sources = tuple(replace(result.sources[0], name=f"s{n}", weight=1 / 12_000) for n in range(12_000))
    written = list(yaml.safe_load(replace(result, sources=sources).to_yaml())["weights"].values())
    assert min(written) == 0
    assert max(written) == 0.0001
    assert sum(written) == pytest.approx(1)


def test_whole_numbers_of_numpy_are_whole_numbers(index: airrep.Index, queries: airrep.Corpus) -> None:
    assert airrep.mix(index, queries, seed=np.int64(3)) == airrep.mix(index, queries, seed=3)  # type: ignore[arg-type]


def test_bad_questions_are_told(index: airrep.Index, queries: airrep.Corpus) -> None:
    for top in (0.0, 1.5, float("nan"), "all"):
        with pytest.raises(ConfigError, match="it must be above 0 and at most 1"):
            airrep.mix(index, queries, top=top)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no field 'tag'"):
        airrep.mix(index, queries, by="tag")
    with pytest.raises(ConfigError, match="has no field 'None'"):
        airrep.mix(index, queries, by=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has 1 value; at least two are needed"):
        airrep.mix(index, queries, where="source == 'forum'")


def test_names_that_separate_are_refused(tmp_path: Path, queries: airrep.Corpus) -> None:
    corpus = airrep.Corpus.from_examples(Example(f"p{n}", "r", f"e{n}", source=f"a,{n % 2}") for n in range(6))
    index = airrep.build_index(corpus, tmp_path / "index", HashAttributor())
    result = airrep.mix(index, queries, top=1.0)
    with pytest.raises(ConfigError, match="contains a comma, or starts or ends with a space"):
        result.to_llama_factory()
    assert "a,0" in result.to_yaml()


def test_files_for_axolotl_hold_examples_to_the_weights(tmp_path: Path) -> None:
    sources = ["rare"] * 5 + ["<odd>/../name"] * 40 + ["common"] * 55
    corpus = Corpus.from_examples(
        Example("" if n == 7 else f"question {n}", f"answer {n} of {name}", f"e{n}", source=name)
        for n, name in enumerate(sources)
    )
    index = airrep.build_index(corpus, tmp_path / "index", "tfidf")
    result = airrep.mix(index, corpus[:9], top=0.3)
    counts = write_axolotl(result, index, tmp_path / "mixed")
    weights = {source.name: source.weight for source in result.sources}
    total = sum(counts.values())
    assert counts.keys() == {name for name, weight in weights.items() if weight > 0}
    assert all(abs(count - weights[name] * total) <= 1 + weights[name] * len(counts) for name, count in counts.items())
    assert any(count == sources.count(name) for name, count in counts.items())
    rows = drawn_rows(result, index)
    assert {name: len(drawn) for name, drawn in rows.items()} == counts
    entries = yaml.safe_load((tmp_path / "mixed" / "datasets.yaml").read_text())["datasets"]
    for (name, count), entry in zip(counts.items(), entries, strict=True):
        kept = {one.id: [one.prompt, one.response] for one in corpus if one.source == name}
        lines = [json.loads(line) for line in (tmp_path / "mixed" / entry["path"]).read_text().splitlines()]
        assert len({line["id"] for line in lines}) == len(lines) == count
        assert [line["id"] for line in lines] == [index.example(row).id for row in rows[name].tolist()]
        for line in lines:
            said = [message["content"] for message in line["messages"]]
            assert said == [text for text in kept[line["id"]] if text]
    with pytest.raises(ArtifactError, match="exists already"):
        write_axolotl(result, index, tmp_path / "mixed")
    index.delete(["e0"])
    with pytest.raises(ConfigError, match="is not the index that `airrep mix` read"):
        write_axolotl(result, airrep.Index(tmp_path / "index"), tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_numbers_and_texts_that_look_like_them_are_sources_of_their_own(tmp_path: Path, queries: airrep.Corpus) -> None:
    values = [1, "1", True, "true"]
    corpus = Corpus.from_examples(Example(f"p{n}", f"r{n}", f"e{n}", metadata={"v": values[n % 4]}) for n in range(40))
    index = airrep.build_index(corpus, tmp_path / "index", HashAttributor())
    names = ['"1"', '"true"', "1", "true"]
    assert {one.name: one.examples for one in airrep.mix(index, queries, by="v").sources} == dict.fromkeys(names, 10)
    assert sorted(index.group_scores(queries, by="v").names) == names
    picked = airrep.select(index, queries, by="v", count=32, most={"1": 2})
    assert [pick.example.metadata["v"] for pick in picked.picks].count(1) >= 2
    assert sum(type(pick.example.metadata["v"]) is int for pick in picked.picks) == 2
    picked = airrep.select(index, queries, by="v", count=32, most={'"1"': 2})
    assert sum(pick.example.metadata["v"] == "1" for pick in picked.picks) == 2


@pytest.mark.parametrize("kind", ["pairs", "kto"])
def test_answers_to_avoid_are_no_targets(tmp_path: Path, kind: str) -> None:
    pairs = {"prompt": "p {}", "chosen": "good red {}", "rejected": "bad blue {}"}
    lines = (
        [pairs] if kind == "pairs" else [{"prompt": "p {}", "completion": "red {}", "label": n} for n in (True, False)]
    )
    records = [
        {name: value.format(n) if isinstance(value, str) else value for name, value in lines[n % len(lines)].items()}
        | {"source": "ab"[n // 2 % 2]}
        for n in range(12)
    ]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    corpus = airrep.read_corpus(tmp_path / "d.jsonl", preferences="both" if kind == "pairs" else "chosen")
    index = airrep.build_index(corpus, tmp_path / "index", "ngram")
    field, wanted = ("preference", 'preference != "rejected"') if kind == "pairs" else ("label", 'label != "false"')
    with pytest.raises(ConfigError, match=f"examples have the {field} .*answers to avoid") as told:
        write_axolotl(airrep.mix(index, corpus[:3], by="source", top=1.0), index, tmp_path / "mixed")
    assert not (tmp_path / "mixed").exists()
    assert f"--where '{wanted}'" in str(told.value)
    left = airrep.mix(index, corpus[:3], by="source", top=1.0, where=wanted)
    assert sum(write_axolotl(left, index, tmp_path / "mixed").values()) == len(records) // (2 if kind == "kto" else 1)


def test_answers_that_were_not_learnt_are_marked_for_axolotl(tmp_path: Path) -> None:
    ask, tools = {"role": "user", "content": "Name a metal."}, [{"type": "function", "function": {"name": "f"}}]
    wrong, right = {"role": "assistant", "content": "Wood.", "weight": 0}, {"role": "assistant", "content": "Iron."}
    records = [
        {"id": "a", "source": "a", "messages": [ask, wrong, ask, right], "tools": tools},
        {"id": "b", "source": "b", "messages": [ask, right, ask, {**right, "content": "Tin."}]},
    ]
    index = airrep.build_index(Corpus.from_records(records, turns="all"), tmp_path / "index", HashAttributor())
    write_axolotl(airrep.mix(index, records[:1], by="source", top=1.0), index, tmp_path / "mixed")
    lines = [line for path in sorted((tmp_path / "mixed").glob("*.jsonl")) for line in path.read_text().splitlines()]
    found = {line["id"]: line for line in map(json.loads, lines)}
    assert found["a"] == {"id": "a", "messages": [ask, {**wrong, "train": False}, ask, right], "tools": tools}
    learnt = [message.get("train", True) for message in found["b/2"]["messages"]]
    assert learnt == [True, False, True, True]  # its first answer is an example of its own
    entries = yaml.safe_load((tmp_path / "mixed" / "datasets.yaml").read_text())["datasets"]
    assert {entry["message_field_training"] for entry in entries} == {"train"}
