"""Sums of channels: the equation, an index of them, what cannot be."""

import gc
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.commands import Run, refused
from worlds.small_world import tree
from worlds.tiny_bert import tiny_folder
from worlds.tiny_lms import tiny_lm

from airrep.attributors.conformance import check_attributor
from airrep.attributors.direct import InMemory
from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import MOST_CHANNELS, Channel, ChannelsSettings, read_channels
from airrep.attributors.sums.channels import ChannelsAttributor, channel_pooling
from airrep.attributors.sums.relative import relative_weights
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.evaluation.classify import ClassifySettings, classify
from airrep.evaluation.given import cost_of
from airrep.evaluation.judging import score_features, score_instance
from airrep.explorer.explorer import ServedIndex
from airrep.index.building import build_index
from airrep.index.index import Index
from airrep.labels.labels import LabelledInstance
from airrep.lm.model import load_lm
from airrep.lm.warmup import warm_up
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling, pool_scores

TEXTS = [
    ("a b c", "the cat sat on the mat", "animals"), ("b c", "the dog sat on the log", "animals"),
    ("d e f", "one and two are three", "numbers"), ("d e", "two and two are four", "numbers"),
    ("g", "a cat and a dog", "animals"), ("h i", "three four five", "numbers"), ("j", "nothing alike", "other"),
]  # fmt: skip
TRAIN = Corpus.from_examples([Example(p, r, id=str(n), source=s) for n, (p, r, s) in enumerate(TEXTS)])
ASKED = [Example("a", "the cat and the dog", id="x"), Example("d", "two four", id="y"), Example("z", "", id="empty")]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_folder(tmp_path_factory.mktemp("encoder") / "tiny"))


def recipe(encoder: str) -> list[dict[str, Any]]:
    """Channels of every kind."""
    return [
        {"method": "ngram", "weight": 2.0},
        {"method": "tfidf", "settings": {"view": "response"}, "weight": 3.0},
        {"method": "airrep", "settings": {"encoder": encoder}, "temperature": 0.5, "weight": 0.1},
        {"method": "airrep", "settings": {"encoder": encoder, "view": "response"}, "pool": "mean", "weight": 0.2},
        {"method": "bm25", "settings": {"view": "whole"}, "pool": "attention", "temperature": 2.0},
        {"method": "ngram", "settings": {"view": "whole", "orders": [1]}, "name": "words", "weight": 0.3},
    ]


@pytest.fixture
def index(tmp_path: Path, encoder: str) -> Index:
    return build_index(TRAIN, tmp_path / "index", "channels", settings={"channels": recipe(encoder)}, shard_rows=3)


def alone(folder: Path, channel: dict[str, Any]) -> Index:
    """An index of one channel's method."""
    return build_index(TRAIN, folder, channel["method"], settings=channel.get("settings", {}))


def test_a_group_has_the_weighted_sum_of_what_each_method_gives_it(tmp_path: Path, index: Index, encoder: str) -> None:
    wanted = 0.0
    for number, channel in enumerate(recipe(encoder)):
        attends = (channel["method"] == "airrep" and "pool" not in channel) or channel.get("pool") == "attention"
        temperature = {"temperature": channel["temperature"]} if attends and "temperature" in channel else {}
        found = alone(tmp_path / str(number), channel).group_scores(ASKED, "source", channel.get("pool"), **temperature)
        wanted = wanted + channel.get("weight", 1.0) * found.scores
    result = index.group_scores(ASKED, "source")
    np.testing.assert_allclose(result.scores, wanted, rtol=2e-3, atol=2e-3)  # stored in half precision
    assert result.provenance.pool == "channels"


def test_a_single_example_is_a_group_of_one(index: Index) -> None:
    top = index.top(ASKED, len(TRAIN))
    singles = index.group_scores(ASKED, {str(row): [row] for row in range(len(TRAIN))}).scores
    for query, hits in enumerate(top):
        np.testing.assert_allclose([hit.score for hit in hits], singles[query, [hit.row for hit in hits]], rtol=1e-4)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    streamed = index.scores(ASKED)
    np.testing.assert_allclose(streamed, singles, rtol=1e-4, atol=1e-5)


def test_one_pool_over_all_is_that_of_the_summed_scores(index: Index) -> None:
    single = index.scores(ASKED)
    with pytest.raises(ConfigError, match="temperature 0.3: .* pool='attention' or pool='signed-attention'"):
        index.group_scores(ASKED, "source", temperature=0.3)
    found = index.group_scores(ASKED, {"some": ["0", "1", "4"]}, "attention", temperature=0.3)
    np.testing.assert_allclose(found.scores[:, 0], pool_scores(single[:, [0, 1, 4]], "attention", 0.3), rtol=1e-3)
    assert (found.provenance.pool, found.provenance.temperature) == ("attention", 0.3)


def test_what_if_is_the_difference_of_groups(index: Index) -> None:
    found = index.what_if(ASKED, remove=["1", "5"])
    groups = {"before": list(range(7)), "after": [0, 2, 3, 4, 6]}
    scores = index.group_scores(ASKED, groups).scores
    np.testing.assert_allclose([found.before, found.after], scores.T, rtol=1e-6)


def test_an_index_is_changed_and_keeps_its_scores(index: Index) -> None:
    groups = {"a": ["0", "1"], "b": ["2", "4"]}
    before = index.group_scores(ASKED, groups).scores
    more = Corpus.from_examples([Example("k", "the cat again", id="more")])
    changed = index.append(more).delete([5]).compact()
    changed.verify()
    opened = Index(changed.path)
    assert (opened.rows, len(opened.manifest["channels"])) == (7, len(opened.attributor.parts))
    np.testing.assert_allclose(opened.group_scores(ASKED, groups).scores, before, rtol=1e-5)
    assert {hit.example.id for hit in opened.top(ASKED[0], 3).hits} & {"more"}


def test_all_that_is_stored_of_channels_is_counted(index: Index) -> None:
    stored = sum(path.stat().st_size for path in index.path.glob("shards/*/*/*.npy"))
    assert cost_of(index).bytes_per_example == pytest.approx(stored / len(TRAIN))


def test_they_conform(encoder: str) -> None:
    check_attributor(lambda: ChannelsAttributor(ChannelsSettings(channels=tuple(recipe(encoder)))))
    dense = ({"method": "airrep", "settings": {"encoder": encoder}},)
    check_attributor(lambda: ChannelsAttributor(ChannelsSettings(channels=dense)))


def test_two_views_share_one_encoder(encoder: str) -> None:
    method = make_attributor("channels", {"channels": recipe(encoder)})
    assert isinstance(method, ChannelsAttributor)
    first, second = method.parts[2:4]
    assert first.encoder is second.encoder
    features = method.parts[3].encode_queries(ASKED)
    assert not features[2].any()


def test_instances_are_scored_as_an_index_is(index: Index, encoder: str) -> None:
    subsets = Groups.from_lists({"a": [0, 1, 2], "b": [3, 4, 6]})
    queries = Corpus.from_examples(ASKED[:2])
    instance = LabelledInstance("0", TRAIN, queries, subsets, np.zeros((2, 2), np.float32))
    method = make_attributor("channels", {"channels": recipe(encoder)})
    scores = score_instance(method, instance)
    np.testing.assert_allclose(scores, index.group_scores(queries, subsets).scores, rtol=2e-3, atol=2e-3)


def test_a_recipe_is_read_from_yaml_and_kept_with_the_index(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("channels:\n- method: ngram\n  weight: 2\n- method: tfidf\n  settings: {view: response}\n")
    index = build_index(TRAIN, tmp_path / "index", "channels", settings={"channels": str(path)})
    before = index.top(ASKED, 3)
    path.unlink()
    assert Index(index.path).top(ASKED, 3)[0].hits == before[0].hits
    assert [channel["method"] for channel in index.manifest["settings"]["channels"]] == ["ngram", "tfidf"]


def test_the_default_is_text_alone() -> None:
    channels = read_channels("text")
    assert {channel.method for channel in channels} == {"ngram", "airrep"}
    assert ChannelsSettings().channels == channels
    assert make_attributor("channels").settings == ChannelsSettings()


def test_the_default_counts_the_tokens_of_a_model_that_is_named() -> None:
    settings = ChannelsSettings(tokenizer="words")
    assert settings.channels[0].settings == {**read_channels("text")[0].settings, "tokenizer": "words"}
    assert ChannelsSettings(**settings.model_dump()) == settings
    own = ChannelsSettings(tokenizer="subwords", channels=[{"method": "ngram"}, {"method": "tfidf"}])
    assert [channel.settings for channel in own.channels] == [{"tokenizer": "subwords"}, {}]


def test_a_target_lm_is_counted_by_and_read_as_a_channel_more() -> None:
    settings = ChannelsSettings(lm="some/model", device="cpu")
    tokens, words, encoder, gradients = settings.channels
    known = {"lm": "some/model", "device": "cpu"}
    counted = {"tokenizer": "some/model"}
    assert tokens.settings == {**read_channels("text")[0].settings, **counted, **known}
    assert words.settings == {**read_channels("text")[1].settings, **known}
    assert encoder.settings == {"encoder": "static", "device": "cpu"}
    assert (gradients.method, gradients.settings["lm"], gradients.settings["device"]) == ("logra", "some/model", "cpu")
    assert ChannelsSettings(**settings.model_dump()) == settings


def test_how_the_lm_reads_is_set_for_all_channels_that_ask_it() -> None:
    tokens, words, encoder, gradients = ChannelsSettings(lm="some/model", max_tokens=8192, template="plain").channels
    for channel in (tokens, words, gradients):
        assert (channel.settings["max_tokens"], channel.settings["template"]) == (8192, "plain")
    assert encoder.settings == {"encoder": "static"}
    with pytest.raises(ConfigError, match="max_tokens: .* no language model is given. Set lm"):
        ChannelsSettings.of({"max_tokens": 8192})
    with pytest.raises(ConfigError, match="max_tokens: .* no language model is given"):
        ChannelsSettings.of({"max_tokens": 64, "channels": [{"method": "ngram"}]})
    own = ChannelsSettings.of({"max_tokens": 64, "channels": [{"method": "ngram", "settings": {"lm": "some/model"}}]})
    assert own.channels[0].settings["max_tokens"] == 64


def test_batch_tokens_are_set_for_all_and_one_lm_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, loaded = tiny_lm(tmp_path / "lm"), []
    noting = lambda given, **how: loaded.append(given.batch_tokens) or load_lm(given, **how)  # noqa: E731
    monkeypatch.setattr("airrep.lm.model.load_lm", noting)
    settings = {"lm": lm, "device": "cpu", "precision": "float32", "batch_tokens": 40}
    small = build_index(TRAIN, tmp_path / "small", "channels", settings=settings)
    assert loaded == [40]
    found = small.top(ASKED[0], 7, why=True).hits
    del small
    gc.collect()
    whole = build_index(TRAIN, tmp_path / "whole", "channels", settings=settings | {"batch_tokens": None})
    assert loaded == [40, None]
    for one, other in zip(found, whole.top(ASKED[0], 7, why=True).hits, strict=True):
        assert one.row == other.row
        assert one.score == pytest.approx(other.score, abs=1e-4)


def test_a_response_of_any_length_is_read_where_the_lm_has_room(tmp_path: Path) -> None:
    lm = tiny_lm(tmp_path / "lm", max_position_embeddings=256)
    train = Corpus.from_examples([*TRAIN, Example("p", "word " * 20, "long")])
    settings: dict[str, Any] = {"lm": lm, "channels": "text"}
    with pytest.raises(DataError, match=r"its response has \d+ tokens, but .* room for 59"):
        build_index(train, tmp_path / "short", "channels", settings=settings | {"max_tokens": 60})
    assert len(build_index(train, tmp_path / "index", "channels", settings=settings | {"max_tokens": 200})) == 8


def test_gradients_are_left_out_by_name() -> None:
    settings = ChannelsSettings(lm="some/model", channels="text")
    assert [channel.method for channel in settings.channels] == ["ngram", "ngram", "airrep"]
    assert settings.channels[0].settings["lm"] == "some/model"


def test_a_channel_without_weight_reads_no_query(tmp_path: Path, encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(encoder)
    index = build_index(TRAIN, tmp_path / "all", "channels", settings={"channels": made})
    text = [one for one in made if one["method"] != "airrep"]
    wanted = build_index(TRAIN, tmp_path / "text", "channels", settings={"channels": text})
    reweighed = Index(index.path, make_attributor("channels", {"channels": text}))
    reading = "airrep.attributors.encoder.EmbeddingAttributor.encode_queries"
    monkeypatch.setattr(reading, lambda *_: pytest.fail("was read"))
    counted: list[tuple[int, int]] = []
    found = reweighed.ask(ASKED, lambda done, total: counted.append((done, total)))
    assert counted[-1] == (len(ASKED), len(ASKED))
    assert list(found.channels()) == [one.title for one in reweighed.attributor.channels if one.weight]
    scores = [one.group_scores(ASKED, by="source").scores for one in (reweighed, wanted)]
    np.testing.assert_allclose(*scores, rtol=1e-5)


def test_a_recipe_says_how_its_channels_are_computed(tmp_path: Path, encoder: str) -> None:
    made = recipe(encoder)
    index = build_index(TRAIN, tmp_path / "all", "channels", settings={"channels": made})
    place = next(number for number, one in enumerate(made) if one["method"] == "airrep")
    embedding = made[place]
    how = {**embedding["settings"], "device": "cpu", "precision": "bfloat16"}
    wanted = {**embedding, "weight": 3.0, "settings": how}
    other = Index(index.path, make_attributor("channels", {"channels": [wanted]}))
    assert isinstance(other.attributor, ChannelsAttributor)
    part = other.attributor.parts[place]
    assert (part.settings.device, part.settings.precision) == ("cpu", "bfloat16")
    assert list(other.ask(ASKED).channels()) == [other.attributor.channels[place].title]


def test_the_recipe_of_kind_is_of_the_default_channels_of_text_with_other_weights(tmp_path: Path) -> None:
    settings = ChannelsSettings(channels="kind", tokenizer="words")
    of_effect = ChannelsSettings(tokenizer="words")
    assert [one.title for one in settings.channels] == [one.title for one in of_effect.channels]
    tokens, words, encoder = (one.weight for one in settings.channels)
    assert encoder > tokens > words
    index = build_index(TRAIN, tmp_path / "index")
    built = build_index(TRAIN, tmp_path / "built", settings={"channels": "kind"})
    asked = index.made_with({"channels": "kind"}).top(ASKED, 3)
    assert asked[0].hits == built.top(ASKED, 3)[0].hits
    assert asked[0].hits[0].score != index.top(ASKED, 1)[0].hits[0].score


def test_an_index_with_gradients_is_asked_for_kind_by_its_text_alone() -> None:
    stored = ChannelsSettings(lm="some/model").model_dump(mode="json")
    text = ChannelsSettings(lm="some/model", channels="text").channels
    found = ChannelsSettings(**{**stored, "channels": "kind"}).channels
    rendered = [{name: value for name, value in one.settings.items() if name != "rendered"} for one in text]
    assert [one.settings for one in found] == rendered


def test_a_target_lm_that_has_moved_is_put_in_every_channel() -> None:
    stored = ChannelsSettings(lm="old/model").model_dump()
    moved = ChannelsSettings(**{**stored, "lm": "new/model"}).channels
    assert moved[0].settings["tokenizer"] == moved[3].settings["lm"] == "new/model"
    assert moved[1].settings["tokenizer"] == "words"


def test_paths_in_a_recipe_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "encoder").mkdir()
    (channel,) = ChannelsSettings(channels=[{"method": "airrep", "settings": {"encoder": "encoder"}}]).channels
    assert channel.settings == {"encoder": str(tmp_path / "encoder")}


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        ([], "at least 1 item"),
        ([{"method": "ngram"}] * 2, "^recipe: two channels .*'ngram'"),
        ([{"method": "ngram", "name": str(n)} for n in range(MOST_CHANNELS + 1)], f"at most {MOST_CHANNELS} items"),
        ([{"method": "ngram", "weight": 0}], "^recipe: no method of the recipe has a weight above 0"),
        ("lm", "^recipe: method 'gradients' .* reads the LM .*--lm MODEL"),
        ([{"method": "ngram", "weight": -1}], "greater than or equal to 0"),
        ([{"method": "ngram", "weight": 1e39}], r"channel 1: weight=1e\+39: input should be less than"),
        ([{"method": "ngram", "wieght": 1}], "wieght"),
        ([{"method": "ngram", "relative": "Apart"}], "channel 1: relative="),
        ("missing.yaml", r"^recipe missing\.yaml: does not exist; expected contrast, kind, lm,"),
        ([{"method": "channels"}], "cannot contain the method 'channels'"),
    ],
)
def test_impossible_recipes_are_told(channels: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_attributor("channels", {"channels": channels})


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        ([{"method": "ngarm"}], "method 'ngarm': does not exist"),
        ([{"method": "tfidf", "pool": "order-1"}], r"channel .*tfidf: pool 'order-1'.* does not work"),
        ([{"method": "tfidf", "pool": "ngram-lm"}], "needs counts of n-grams, but tfidf has none"),
        ([{"method": "tfidf", "pool": "diminishing"}], "channel .*tfidf: pool 'diminishing' .* works only with dense"),
    ],
)
def test_impossible_channels_are_told(tmp_path: Path, channels: list, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_index(TRAIN, tmp_path / "index", "channels", settings={"channels": channels})
    assert not (tmp_path / "index").exists()


def test_a_diminishing_channel_is_that_pool_of_its_method(encoder: str, tmp_path: Path) -> None:
    settings = {"encoder": encoder}
    channels = [{"method": "airrep", "settings": settings, "pool": "diminishing", "weight": 0.5}]
    groups = {"a": [0, 1, 2], "b": [3], "all": list(range(len(TRAIN)))}
    summed = build_index(TRAIN, tmp_path / "sum", "channels", settings={"channels": channels})
    alone = build_index(TRAIN, tmp_path / "alone", "airrep", settings=settings)
    expected = alone.group_scores(ASKED, groups, "diminishing").scores
    np.testing.assert_allclose(summed.group_scores(ASKED, groups).scores, 0.5 * expected, rtol=1e-5, atol=1e-7)
    gone = summed.what_if(ASKED, remove=[0, 1])
    kept = summed.group_scores(ASKED, {"kept": list(range(2, len(TRAIN))), "all": groups["all"]}).scores
    np.testing.assert_allclose(gone.change, kept[:, 0] - kept[:, 1], rtol=1e-3, atol=1e-6)


def test_a_file_of_ten_thousand_channels_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("".join(f"- method: ngram\n  name: {'channel ' * 10}{n}\n" for n in range(10_000)))
    with pytest.raises(ConfigError, match=r"recipe\.yaml: has [\d,]+ bytes, .* at most [\d,]+ bytes") as told:
        make_attributor("channels", {"channels": str(path)})
    assert "\n" not in str(told.value)
    path.write_text("".join(f"- {{method: ngram, name: n{n}}}\n" for n in range(10_000)))  # a file small enough to read
    with pytest.raises(ConfigError, match="at most 16 items") as told:
        make_attributor("channels", {"channels": str(path)})
    assert len(str(told.value)) < 400


QUERIES = [Example("p", "ab cd ef", "a"), Example("q", "cd ef", "b")]
WORDS, TERMS = {"method": "ngram", "weight": 2.0}, {"method": "tfidf", "pool": "attention", "temperature": 0.5}


def _index_of(folder: Path, *channels: dict[str, Any]) -> Index:
    train = Corpus.from_examples(
        Example(f"p{n}", " ".join(("ab", "cd", "ef")[(n * k) % 3] for k in range(4)), str(n), source=str(n % 4))
        for n in range(24)
    )
    return build_index(train, folder, "channels", settings={"channels": channels}, shard_rows=7)


def _asked(path: Path, *channels: dict[str, Any]) -> Index:
    return Index(path, make_attributor("channels", {"channels": channels}))


def test_an_index_is_asked_with_other_weights_than_it_was_built_with(tmp_path: Path) -> None:
    _index_of(tmp_path / "one", WORDS, TERMS)
    other = [WORDS | {"weight": 0.5}, TERMS | {"pool": "sum", "temperature": 1.0, "weight": 3.0}]
    expected = _index_of(tmp_path / "other", *other)
    found = _asked(tmp_path / "one", *other)
    ours, theirs = ([[hit.row for hit in hits] for hits in one.top(QUERIES)] for one in (found, expected))
    assert ours == theirs
    np.testing.assert_allclose(*(one.group_scores(QUERIES, "source").scores for one in (found, expected)), rtol=1e-6)
    ours, theirs = (one.what_if(QUERIES, remove=[1, 2]).change for one in (found, expected))
    assert ours == pytest.approx(theirs, rel=1e-5)


def test_channels_that_weights_lack_count_nothing(tmp_path: Path) -> None:
    _index_of(tmp_path / "both", WORDS, TERMS)
    alone = _index_of(tmp_path / "alone", TERMS)
    found = _asked(tmp_path / "both", TERMS)
    assert found.group_scores(QUERIES, "source").scores == pytest.approx(alone.group_scores(QUERIES, "source").scores)
    ours, theirs = ([hit.score for hit in one.top(QUERIES, 5)[0]] for one in (found, alone))
    assert ours == pytest.approx(theirs)


def test_a_channel_of_the_same_name_with_another_setting_is_told_by_that_setting(tmp_path: Path) -> None:
    index = _index_of(tmp_path / "index", {**WORDS, "name": "n"})
    other = ({"method": "ngram", "settings": {"tokenizer": "subwords"}, "name": "n"},)
    told = r"the index has no method 'n' .*\(tokenizer='subwords'; in the index 'words'\)\."
    with pytest.raises(ConfigError, match=told):
        index.attributor.reweighed(ChannelsSettings(channels=other).channels)


def test_a_recipe_in_another_order_asks_the_same_index(tmp_path: Path) -> None:
    words, terms = {**WORDS, "weight": 1.0}, {"method": "tfidf"}
    index = _index_of(tmp_path / "index", words, terms)
    found = Index(index.path).made_with({"channels": [terms, words]})
    assert found.top(ASKED, 3)[0].hits == index.top(ASKED, 3)[0].hits
    assert found.fingerprint == index.fingerprint


def test_the_fingerprint_of_an_index_tells_the_weights_it_is_asked_with(tmp_path: Path) -> None:
    index = _index_of(tmp_path / "index", WORDS, TERMS)
    plain, same = Index(index.path), Index(index.path).made_with({"channels": [WORDS, TERMS]})
    assert plain.fingerprint == same.fingerprint == index.fingerprint
    others = [[WORDS], [TERMS], [WORDS, {**TERMS, "pool": "sum"}], [WORDS, {**TERMS, "weight": 2.0}]]
    asked = [Index(index.path).made_with({"channels": one}) for one in others]
    assert len({index.fingerprint, *(one.fingerprint for one in asked)}) == 5
    assert asked[0].top(ASKED, 1).provenance.index == asked[0].fingerprint
    labelled = Corpus.from_examples([Example("p", "ab cd ef", "q", source="1")])
    runs = [classify([("d", one)], labelled, ClassifySettings(by="source", votes=(1,))) for one in (plain, asked[0])]
    assert runs[0].request != runs[1].request


def test_an_append_through_other_weights_writes_the_same_index(tmp_path: Path) -> None:
    more = Corpus.from_examples([Example("k", "ab ab", "more")])
    for name in ("plain", "asked"):
        _index_of(tmp_path / name, WORDS, TERMS)
    Index(tmp_path / "plain").append(more)
    grown = Index(tmp_path / "asked").made_with({"channels": [TERMS]}).append(more)
    assert [one.weight for one in grown.attributor.channels] == [0.0, 1.0]
    ours, theirs = tree(tmp_path / "plain"), tree(tmp_path / "asked")
    assert {name: one for name, one in ours.items() if "shards" in name} == {
        name: one for name, one in theirs.items() if "shards" in name
    }
    assert len(grown.delete(["more"])) == 24


def test_settings_that_are_others_now_hold_with_other_weights_too(tmp_path: Path) -> None:
    lm = Path(tiny_lm(tmp_path / "old"))
    settings = {"lm": str(lm), "precision": "float32", "channels": [{"method": "ngram"}, {"method": "tfidf"}]}
    index = build_index(TRAIN, tmp_path / "index", "channels", settings=settings)
    louder = {"channels": [{"method": "ngram", "weight": 2.0}]}
    expected = index.made_with(louder).top(ASKED[0], 3)
    lm.rename(tmp_path / "new")
    found = Index(index.path).made_with({"lm": str(tmp_path / "new"), **louder})
    for one in (found, found.reopened(), ServedIndex(found)):
        assert one.top(ASKED[0], 3).hits == expected.hits
    other = Index(index.path).made_with({"lm": str(tmp_path / "new"), "precision": "bfloat16", **louder})
    assert set(other.attributor.execution.values()) == {"bfloat16"}


def test_an_encoder_that_has_moved_is_named_for_all_channels_that_have_it(tmp_path: Path) -> None:
    old, new, settings = tmp_path / "old", tmp_path / "new", {"encoder": "default", "view": "response"}
    shipped = {"method": "airrep", "settings": settings, "weight": 0.5, "name": "shipped"}
    channels = [*recipe(str(tiny_folder(old))), shipped]
    index = build_index(TRAIN, tmp_path / "index", "channels", settings={"channels": channels})
    louder = {"channels": [{**channels[0], "weight": 7.0}, shipped]}
    expected = [index.top(ASKED[0], 3).hits, index.made_with(louder).top(ASKED[0], 3).hits]
    old.rename(new)
    with pytest.raises(ConfigError, match=f"encoder {old}: there is no such folder.*--set encoder=FOLDER"):
        Index(index.path).top(ASKED[0], 3)
    moved = {"encoder": str(new)}
    found = [Index(index.path).made_with(moved), Index(index.path).made_with(moved | louder)]
    assert [one.top(ASKED[0], 3).hits for one in found] == expected
    with pytest.raises(ConfigError, match="the index has no method 'n-grams of tokens'"):  # and no such encoder
        Index(index.path).made_with(moved | {"channels": "text"}).top(ASKED[0], 3)
    other = Index(index.path).made_with({"encoder": str(tiny_folder(tmp_path / "other", seed=1))})
    with pytest.raises(ArtifactError, match="was built with another model"):
        other.top(ASKED[0], 3)


def test_an_encoder_for_all_channels_is_refused_where_it_is_not_told_for_which(tmp_path: Path) -> None:
    default = ChannelsSettings(encoder=str(tmp_path)).channels  # none has its own: the shipped one's place
    assert default[2].settings["encoder"] == str(tmp_path)
    assert default[:2] == read_channels("text")[:2]
    two = [{"method": "airrep", "settings": {"encoder": f"some/{name}"}, "name": name} for name in "ab"]
    for channels, told in (
        ([{"method": "ngram"}], "no method of the recipe uses an encoder"),
        (two, "would replace several.*some/a, some/b"),
    ):
        with pytest.raises(ConfigError, match=f"encoder: .*{told}"):
            make_attributor("channels", {"channels": channels, "encoder": "default"})


@pytest.fixture
def before_and_after(tmp_path: Path) -> tuple[str, str]:
    """A language model, and what stands for it after a warm-up."""
    return tiny_lm(tmp_path / "before"), tiny_lm(tmp_path / "after", seed=1)


TEXT_WARMED = (*read_channels("text"), read_channels("lm-warm")[-1])
WARMED = ["n-grams of tokens", "n-grams of words", "encoder", "gradients", "warmed gradients"]


def test_the_lm_after_a_warm_up_is_a_channel_more(tmp_path: Path, before_and_after: tuple[str, str]) -> None:
    before, after = before_and_after
    reads = {"lm": before, "warmed": after, "device": "cpu", "precision": "float32"}
    settings = ChannelsSettings.of(reads)
    assert [one.title for one in settings.channels] == WARMED
    assert [one.settings.get("lm") for one in settings.channels] == [before, before, None, before, after]
    index = build_index(TRAIN, tmp_path / "index", "channels", settings=reads)
    gradients = zip(settings.channels[3:], index.attributor.parts[3:], strict=True)
    assert [str(channel_pooling(*one)) for one in gradients] == ["diminishing", "diminishing"]
    told = index.top(ASKED[0], 2, why=True).hits[0]
    assert list(told.why.channels) == WARMED
    alone = {**reads, "channels": [one.model_dump(mode="json") for one in settings.channels[:4]]}
    without = build_index(TRAIN, tmp_path / "without", "channels", settings={**alone, "warmed": None})
    plain = without.group_scores(ASKED[:2], "source", why=True).channels
    found = index.group_scores(ASKED[:2], "source", why=True).channels
    assert plain is not None
    assert found is not None
    for name in WARMED[:4]:  # what the others give does not depend on it
        np.testing.assert_allclose(found[name], plain[name], rtol=1e-5, atol=1e-6)
    assert np.abs(found[WARMED[-1]]).min() > 0


def test_an_index_with_the_lm_after_a_warm_up_is_asked_by_other_recipes_and_from_other_places(
    tmp_path: Path, before_and_after: tuple[str, str]
) -> None:
    before, after = before_and_after
    reads = {"lm": before, "warmed": after, "device": "cpu", "precision": "float32"}
    built = build_index(TRAIN, tmp_path / "index", "channels", settings=reads)
    expected = built.top(ASKED[0], 3).hits
    kind, default = ({"channels": name} for name in ("kind", "lm-warm"))
    asked = built.made_with(kind).top(ASKED[0], 3).hits
    assert built.made_with(default).top(ASKED[0], 3).hits == expected
    assert built.made_with(default | {"channels": "text"}).top(ASKED[0], 3).hits != expected
    Path(after).rename(tmp_path / "moved")
    moved = {"warmed": str(tmp_path / "moved")}
    assert Index(built.path).made_with(moved).top(ASKED[0], 3).hits == expected
    assert Index(built.path).made_with(moved | kind).top(ASKED[0], 3).hits == asked
    alone = built.attributor.channels[-1].model_dump(mode="json")  # type: ignore[attr-defined]
    settings = {name: value for name, value in alone["settings"].items() if name != "lm"}
    only = {"channels": [{**alone, "settings": settings, "relative": False}]}
    (told,) = Index(built.path).made_with(moved | only).top(ASKED[0], 1, why=True).hits
    assert told.why.channels["warmed gradients"] == pytest.approx(told.score)
    with pytest.raises(ArtifactError, match="another model"):
        built.made_with({"warmed": tiny_lm(tmp_path / "other", seed=2)}).top(ASKED[0], 3)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"channels": 5}, "recipe is 5; it must be a list of methods"),
        ({"warmed": "some/model"}, "warmed works only with lm and a recipe"),
        ({"warmed": "w", "lm": "m", "channels": [{"method": "ngram"}]}, "warmed works only with lm and a recipe"),
        ({"warmed": "w", "lm": "m", "channels": "kind"}, "warmed works only with lm and a recipe"),
    ],
)
def test_settings_that_make_no_recipe_are_told(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ChannelsSettings.of(values)


def test_the_lm_itself_is_not_taken_for_one_after_a_warm_up(tmp_path: Path, before_and_after: tuple[str, str]) -> None:
    before, _ = before_and_after
    (tmp_path / "link").symlink_to(before)
    for name in (before, f"{before}/", str(tmp_path / "link"), str(tmp_path / "after" / ".." / "before")):
        with pytest.raises(ConfigError, match=f"^warmed {before}: .* same weights as lm {before}"):
            build_index(TRAIN, tmp_path / "i", "channels", settings={"lm": before, "warmed": name})
    alone = {"lm": before, "warmed": before, "channels": [{"method": "tfidf"}, {"method": "rds", "warmed": True}]}
    with pytest.raises(ConfigError, match="same weights as lm"):
        build_index(TRAIN, tmp_path / "i", "channels", settings=alone)
    assert not (tmp_path / "i").exists()


def test_an_index_is_built_with_one_lm_before_and_after_alone(
    tmp_path: Path, before_and_after: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    before, after = before_and_after
    reads = {"lm": before, "device": "cpu", "precision": "float32", "channels": TEXT_WARMED}
    shutil.copytree(before, tmp_path / "copy")
    with pytest.raises(ConfigError, match="has the same weights as lm"):
        build_index(TRAIN, tmp_path / "i", "channels", settings={**reads, "warmed": str(tmp_path / "copy")})
    assert not (tmp_path / "i").exists()
    made = warm_up(TRAIN.take([0, 1]), tmp_path / "warm", {"lm": after, "device": "cpu", "precision": "float32"})
    build_index(TRAIN, tmp_path / "i", "channels", settings={**reads, "warmed": str(made.path)})
    assert f"is a warm-up of {after}, whose files differ from those of {before}" in caplog.text


def test_what_reads_an_lm_after_a_warm_up_says_what_it_lacks(tmp_path: Path, before_and_after: tuple[str, str]) -> None:
    before, after = before_and_after
    gradients = {"method": "logra", "warmed": True, "settings": {"rank": 4, "sketch": None}}
    wanted = r"^settings: method 'logra' .* needs the LM .*`airrep warmup`.*--warmed FOLDER"
    with pytest.raises(ConfigError, match=wanted):
        ChannelsSettings.of({"lm": before, "channels": [{"method": "ngram"}, gradients]})
    with pytest.raises(ConfigError, match="warmed: must be false, because tfidf reads no language model"):
        ChannelsSettings.of({"channels": [{"method": "tfidf", "warmed": True}]})
    for name in ("lm", "warmed", "base", "encoder", "tokenizer"):
        with pytest.raises(ConfigError, match=f"{name}=''"):
            ChannelsSettings.of({"lm": before, "warmed": after, name: ""})
    own = {**gradients, "settings": {"rank": 4, "sketch": None, "lm": after}}
    learnt = [{"method": "ngram", "settings": {"lm": before}}, own]
    found = ChannelsSettings.of({"channels": learnt, "warmed": str(tmp_path / "after")}).channels
    assert found[1].settings["lm"] == after  # the LM before it stands in the recipe


def test_an_index_whose_lm_after_a_warm_up_moved_is_appended_to(
    tmp_path: Path, before_and_after: tuple[str, str], run: Run
) -> None:
    before, after = before_and_after
    reads = {"lm": before, "warmed": after, "device": "cpu", "precision": "float32", "channels": TEXT_WARMED}
    built = build_index(TRAIN, tmp_path / "i", "channels", settings=reads)
    Path(after).rename(tmp_path / "moved")
    more = tmp_path / "more.jsonl"
    more.write_text('{"id": "m", "prompt": "k", "response": "a dog and a cat"}\n')
    append = ("append", str(built.path), str(more))
    refused(run(*append), "--set warmed=FOLDER")
    ran = run(*append, "--set", f"warmed={tmp_path / 'moved'}")
    assert (ran.status, "1 example added" in ran.err) == (0, True)
    assert run(*append, "--recipe", "kind").status != 0


def test_adapters_of_the_lm_after_a_warm_up_belong_to_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / "adapter_config.json").write_text("{}")
    found = ChannelsSettings.of({"lm": "some/model", "warmed": str(tmp_path / "adapters")}).channels
    assert found[-1].settings["base"] == "some/model"
    assert "base" not in ChannelsSettings.of({"lm": "some/model", "warmed": "other/model"}).channels[-1].settings


def test_channels_that_differ_in_their_pool_alone_are_each_weighed(tmp_path: Path) -> None:
    mean = {"method": "tfidf", "pool": "mean", "name": "mean"}
    _index_of(tmp_path / "one", TERMS, mean)
    other = [mean | {"weight": 3.0}, TERMS | {"weight": 0.5}]
    expected = _index_of(tmp_path / "other", *other).group_scores(QUERIES, "source").scores
    found = _asked(tmp_path / "one", *other).group_scores(QUERIES, "source", why=True)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-6)
    assert list(found.channels) == ["tfidf", "mean"]
    renamed = _asked(tmp_path / "one", *[one | {"name": str(n)} for n, one in enumerate(other)])
    np.testing.assert_allclose(renamed.group_scores(QUERIES, "source").scores, expected, rtol=1e-6)
    lone = _asked(tmp_path / "one", mean | {"weight": 2.0}).attributor
    assert [one.weight for one in lone.channels] == [0.0, 2.0]


def test_a_recipe_that_has_one_channel_of_the_index_twice_is_told(tmp_path: Path) -> None:
    _index_of(tmp_path / "index", WORDS, TERMS)
    with pytest.raises(ConfigError, match="'tfidf' and 'mean' have the same method"):
        _asked(tmp_path / "index", TERMS, {"method": "tfidf", "pool": "mean", "name": "mean"}).top(ASKED, 1)


def test_weights_of_channels_that_the_index_lacks_are_told(tmp_path: Path) -> None:
    _index_of(tmp_path / "words", WORDS)
    with pytest.raises(ConfigError, match="channels: the index has no method 'tfidf' .*The index has ngram"):
        _asked(tmp_path / "words", WORDS, TERMS).top([Example("p", "ab", "a")], 1)
    other = {**TERMS, "name": WORDS.get("name", WORDS["method"])}
    with pytest.raises(ConfigError, match=r"has no method '.*\(method tfidf; in the index ngram\)"):
        _asked(tmp_path / "words", other).top([Example("p", "ab", "a")], 1)


@pytest.mark.parametrize("method", ["tfidf", "bm25", "dsir", "gte", "airrep", "ngram"])
def test_any_method_that_needs_nothing_can_be_a_channel(method: str) -> None:
    settings = {"encoder": "default"} if method == "gte" else {}
    channels = [{"method": method, "settings": settings, "weight": 0.5}, {"method": "ngram", "name": "other"}]
    check_attributor(lambda: make_attributor("channels", {"channels": channels}))


GRADIENTS = {"method": "tfidf", "pool": "attention", "temperature": 0.3, "weight": 0.7, "relative": True}


def _relative(*channels: dict[str, Any]) -> ChannelsAttributor:
    method = make_attributor("channels", {"channels": channels})
    assert isinstance(method, ChannelsAttributor)
    return method


def test_a_relative_weight_is_that_of_scores_brought_to_the_size_of_the_others() -> None:
    """By the written equation, in float64, over the reference groups."""
    train = Corpus.from_examples(
        Example(f"p{n}", " ".join(WORD_LIST[(n * k * k + k) % 11] for k in range(2, 7)), str(n)) for n in range(60)
    )
    queries = [Example("p", " ".join(WORD_LIST[(n + k) % 11] for k in range(4)), f"q{n}") for n in range(5)]
    plain = [make_attributor("ngram"), make_attributor("tfidf")]
    method = _relative(WORDS, GRADIENTS)
    method.fit(train)
    for one in plain:
        one.fit(train)
    groups = Groups.from_lists({"a": range(10), "b": range(5, 40), "c": [59]})
    found = group_scores(method.ask(queries, InMemory.of(method, train)), groups)
    reference = method._reference
    assert reference is not None
    sizes, seen = [], []
    for one, part, pool in zip(
        plain, reference.parts.values(), ("ngram-lm", Pooling("attention", temperature=0.3)), strict=True
    ):
        scores = [
            score_features(part, one.encode_queries([query]), reference._groups, pool)[0].astype(np.float64)
            for query in queries
        ]
        sizes.append(np.array([np.sqrt(np.mean((row - row.mean()) ** 2)) for row in scores]))
        seen.append(scores)
    counted, weighed = (
        score_features(one.encode_train(train), one.encode_queries(queries), groups, pool).astype(np.float64)
        for one, pool in zip(plain, ("ngram-lm", Pooling("attention", temperature=0.3)), strict=True)
    )
    factors = 0.7 * 2.0 * sizes[0] / sizes[1]
    factors *= [1 - np.corrcoef(ours, theirs)[0, 1] for ours, theirs in zip(*seen, strict=True)]
    expected = 2.0 * counted + factors[:, None] * weighed
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def test_a_channel_that_says_what_the_others_say_adds_next_to_nothing_apart(tmp_path: Path) -> None:
    twin = {"method": "ngram", "settings": {"tokenizer": "words"}, "name": "twin", "weight": 2.0}
    index = _index_of(tmp_path / "index", WORDS, {**twin, "relative": True})
    found = index.group_scores(QUERIES, "source", why=True)
    ours, theirs = found.channels.values()
    assert np.abs(ours).max() > 0
    np.testing.assert_allclose(theirs, 2e-3 * ours, rtol=1e-3)


WORD_LIST = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op", "qr", "st", "uv"]


def test_relative_channels_conform_and_are_kept_with_an_index(tmp_path: Path) -> None:
    channel = GRADIENTS
    check_attributor(lambda: _relative(WORDS, channel))
    index = _index_of(tmp_path / "index", WORDS, channel)
    again = Index(tmp_path / "index")
    scores = index.group_scores(QUERIES, "source").scores
    np.testing.assert_array_equal(again.group_scores(QUERIES, "source").scores, scores)
    absolute = [WORDS, {**channel, "relative": False, "weight": 5.0}]
    expected = _index_of(tmp_path / "absolute", *absolute).group_scores(QUERIES, "source").scores
    found = _asked(tmp_path / "index", *absolute).group_scores(QUERIES, "source").scores
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(ConfigError, match="relative: true, but the index"):
        _asked(tmp_path / "absolute", WORDS, channel).top(QUERIES, 1)


def test_why_and_groups_tell_what_a_relative_channel_gave(tmp_path: Path) -> None:
    index = _index_of(tmp_path / "index", WORDS, GRADIENTS)
    for hits in index.top(QUERIES, 3, why=True):
        for hit in hits:
            assert sum(hit.why.channels.values()) == pytest.approx(hit.score, rel=1e-5)
    found = index.group_scores(QUERIES, "source", why=True)
    np.testing.assert_allclose(sum(found.channels.values()), found.scores, rtol=1e-5)


def test_a_query_of_which_nothing_is_known_scores_0(tmp_path: Path) -> None:
    index = _index_of(tmp_path / "index", WORDS, GRADIENTS)
    assert not index.group_scores([Example("p", "", "a")], "source").scores.any()


@pytest.mark.parametrize("other", [{"relative": True}, {"weight": 0}])
def test_not_all_weights_are_relative(other: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cannot all have 'relative: true'"):
        _relative(GRADIENTS, {"method": "ngram", **other})


def test_a_sum_that_differs_by_roundings_alone_is_no_size_to_be_brought_to() -> None:
    """Weighted sums of equal float32 scores differ in their last digits from their mean."""
    channels = [
        Channel(method="ngram"),
        Channel(method="tfidf", weight=0.3),
        Channel(method="bm25", relative=True, weight=2.8),
    ]
    generator = np.random.default_rng(0)
    for _ in range(20):
        equal = [np.full((1, 64), generator.normal(2), np.float32) for _ in range(2)]
        own = generator.normal(0, 0.1, (1, 64))
        found = relative_weights(channels, np.stack([*equal, own]).astype(np.float64))[0]
        np.testing.assert_allclose(found, [1, 0.3, 2.8 / own.std()], rtol=1e-12)
        found = relative_weights(channels, np.stack([own, own, equal[0]]).astype(np.float64))[0]
        np.testing.assert_allclose(found[2], 2.8 * 1.3 * own.std(), rtol=1e-12)


@pytest.mark.parametrize("number", [0, 1])
def test_damaged_reference_groups_are_one_line(tmp_path: Path, number: int) -> None:
    _index_of(tmp_path / "index", WORDS, GRADIENTS)
    (path,) = (tmp_path / "index" / "state").glob(f"reference-{number}.*")
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(ArtifactError, match=rf"reference-{number}.*: was altered"):
        Index(tmp_path / "index").top([Example("p", "ab", "a")], 1)


def test_examples_of_which_a_view_shows_nothing_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    corpus = Corpus.from_examples(
        [Example("" if n % 3 == 0 else f"question {n}", f"answer {n} is here", id=f"e{n}") for n in range(12)]
    )
    corpus.to_jsonl(tmp_path / "some.jsonl")
    (tmp_path / "recipe.yaml").write_text(
        "- {method: ngram, name: prompts, settings: {view: prompt}}\n- {method: ngram, name: responses}\n"
    )
    monkeypatch.chdir(tmp_path)
    index = ["index", "some.jsonl", "--recipe", "recipe.yaml", "--set", "shard_rows=4", "--out"]
    parts = [[*index, f"p{number}", "--part", f"{number}/2"] for number in (1, 2)]
    for command in ([*index, "i"], *parts, ["append", "joined", "p1", "p2"]):
        said = " ".join(run(*command).err.split())
        assert "'prompts' has nothing to read in 4 examples, so its score is 0" in said, command
        assert "'responses' has nothing to read" not in said


@pytest.mark.parametrize(("weight", "told"), [(0.0, False), (0.5, True)])
def test_only_channels_that_count_give_a_caution(weight: float, told: bool) -> None:
    encoder = {"method": "airrep", "settings": {"encoder": "default"}, "weight": weight}
    method = make_attributor("channels", {"channels": [{"method": "ngram"}, encoder]})
    assert ("shipped encoder" in method.caution) == told


def test_a_caution_that_channels_share_is_told_once() -> None:
    views = ("whole", "response", "prompt")
    settings = [{"encoder": "static", "view": view} for view in views]
    channels = [{"method": "airrep", "name": f"of {one['view']}", "settings": one} for one in settings]
    caution = make_attributor("channels", {"channels": channels}).caution
    assert caution.count("The static encoder learnt") == 1
    assert ("reads view=response" in caution, "reads view=prompt" in caution) == (True, True)
