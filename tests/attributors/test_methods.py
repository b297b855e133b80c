"""Attributors: one conformance suite for all; an index of TF-IDF, RDS against transformers."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import HashAttributor, make_corpus
from worlds.tiny_bert import tiny_folder
from worlds.tiny_lms import some_examples, tiny_lm

import airrep
from airrep.attributors.base import Attributor
from airrep.attributors.methods import METHODS, make_attributor
from airrep.attributors.text.lexical import TfidfAttributor
from airrep.corpus.corpus import Corpus, Example
from airrep.encoder.load import load_encoder
from airrep.errors import ArtifactError, ConfigError, NotFittedError
from airrep.lm.model import load_lm
from airrep.lm.settings import LmSettings
from airrep.runtime.artifacts import json_digest

OFFLINE = {"gte": {"encoder": "default"}}


ELSEWHERE = {
    "rds": "test_methods.py", "tracin": "gradient/test_methods.py", "logra": "gradient/test_methods.py",
    "trak": "gradient/test_methods.py", "dsdm": "gradient/test_methods.py", "less": "gradient/run/test_less.py",
    "metagradient": "gradient/run/test_metagradient.py", "influence": "gradient/test_influence.py",
    "datamodels": "../training/linear/test_datamodels.py", "ekfac": "gradient/test_ekfac.py",
    "precomputed": "test_precomputed.py",
}  # fmt: skip
"""Where methods are checked that need a language model, labels or files."""


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ELSEWHERE])
def test_methods_that_need_nothing_conform(name: str, tmp_path: Path) -> None:
    tiny = name in ("airrep", "gte")  # the encoder that comes with airrep is one of the channels
    settings = {"encoder": tiny_folder(tmp_path / "encoder")} if tiny else OFFLINE.get(name)
    airrep.check_attributor(lambda: make_attributor(name, settings))


def test_all_others_are_checked_beside_their_own_tests() -> None:
    assert set(ELSEWHERE) < set(METHODS)
    for file in ELSEWHERE.values():
        assert "check_attributor(" in (Path(__file__).parent / file).read_text()


def test_conformance_of_ngrams_and_float32(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "encoder")
    airrep.check_attributor(lambda: make_attributor("tfidf", {"ngrams": 2, "min_count": 2}))
    airrep.check_attributor(
        lambda: make_attributor("airrep", {"encoder": folder, "precision": "float32", "batch_tokens": 1})
    )


class CountsTheCall(HashAttributor):
    def encode_train(self, examples, on_rows=None):
        return super().encode_train(examples) * np.float32(len(examples))


class NeverTheSame(HashAttributor):
    made = 0

    @property
    def fingerprint(self) -> str:
        NeverTheSame.made += 1
        return f"{NeverTheSame.made:064d}"


class LearnsInSecret(HashAttributor):
    """Features are divided by what the corpus has, which the fingerprint does not tell."""

    learnt = 1.0

    def fit(self, train):
        self.learnt = float(len(train))

    def encode_train(self, examples, on_rows=None):
        return super().encode_train(examples, on_rows) / np.float32(self.learnt)

    def save_state(self, folder):
        (folder / "learnt.txt").write_text(str(self.learnt))

    def load_state(self, folder):
        self.learnt = float((folder / "learnt.txt").read_text())


class LearnsByRow(LearnsInSecret):
    """The first example of the corpus says which features count, and the fingerprint tells it."""

    learnt = "0"

    def fit(self, train):
        self.learnt = train[0].content_hash

    @property
    def fingerprint(self) -> str:
        return json_digest([str(self.learnt)])

    def encode_train(self, examples, on_rows=None):
        features = HashAttributor.encode_train(self, examples, on_rows)
        signs = np.random.default_rng(int(str(self.learnt), 16)).choice([0, 1], features.shape[1])
        return features * signs.astype(np.float32)

    def load_state(self, folder):
        self.learnt = (folder / "learnt.txt").read_text()


class ForgetsToSave(LearnsInSecret):
    def fit(self, train):
        self.mean = float(len(train))

    def encode_train(self, examples, on_rows=None):
        if not hasattr(self, "mean"):
            raise NotFittedError("hash: has not seen the training corpus. Call fit(train) first.")
        return HashAttributor.encode_train(self, examples, on_rows) / np.float32(self.mean)

    save_state = load_state = HashAttributor.save_state


class NoCallback(HashAttributor):
    def encode_train(self, examples):
        return super().encode_train(examples)


class MissesAnAttribute(HashAttributor):
    def fit(self, train):
        self.mean = len(train)

    def encode_train(self, examples, on_rows=None):
        return super().encode_train(examples, on_rows) / np.float32(self.mean)


def giving(features) -> type[HashAttributor]:
    """A method whose features are these, whatever is asked."""
    return type("Giving", (HashAttributor,), {"encode_train": lambda self, examples, on_rows=None: features})


def having(**attributes) -> type[HashAttributor]:
    return type("Having", (HashAttributor,), attributes)


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (CountsTheCall, "features depend on the other examples"),
        (NeverTheSame, "two attributors made in the same way have different fingerprints"),
        (LearnsInSecret, "fit on another corpus changes the features, but not the fingerprint"),
        (LearnsByRow, "scores depend on the order of the corpus"),
        (ForgetsToSave, "save_state, then load_state failed with NotFittedError"),
        (NoCallback, "encode before fit, which must work or raise NotFittedError, failed with TypeError"),
        (MissesAnAttribute, "encode before fit, which must work or raise NotFittedError, failed with AttributeError"),
        (giving(None), "hash: encode_train returned a NoneType"),
        (giving([[1.0]] * 8), "hash: encode_train returned a list"),
        (giving(np.zeros(8, np.float32)), r"hash: encode_train returned a ndarray \(8,\) of float32"),
        (giving(np.zeros((8, 2))), "features are float64, not float32"),
        (having(settings={}), r"settings are a dict, not an airrep\.runtime\.settings\.Settings"),
        (having(settings=None), "settings are a NoneType"),
        (having(fingerprint=7), "the fingerprint is 7, not 64 hex digits"),
        (having(name=None), "name None is not one word"),
        (HashAttributor(), "got a HashAttributor, not a class or a function that makes an attributor"),
        (dict, "a dict was made, not an airrep.Attributor"),
        (airrep.Attributor, "a new attributor failed with TypeError"),
    ],
)
def test_conformance_finds_what_is_broken(broken, promise: str) -> None:
    airrep.check_attributor(HashAttributor)
    with pytest.raises(AssertionError, match=f"^check_attributor: {promise}"):
        airrep.check_attributor(broken)


def test_tfidf_index_answers_like_the_attributor(tmp_path: Path) -> None:
    train, queries = make_corpus(40), make_corpus(7, "other")
    index = airrep.build_index(train, tmp_path / "tfidf", "tfidf", shard_rows=16)
    attributor = TfidfAttributor()
    attributor.fit(train)
    scores = attributor.encode_queries(queries) @ attributor.encode_train(train).T
    for row, hits in zip(scores, airrep.Index(index.path).top(queries, k=5), strict=True):
        assert [hit.row for hit in hits] == np.argsort(-row, kind="stable")[:5].tolist()
    result = index.group_scores(queries, "label")
    expected = [scores[:, label::3].sum(axis=1) for label in range(3)]
    np.testing.assert_allclose(result.scores, np.stack(expected, axis=1), rtol=1e-5)
    grown = index.append(make_corpus(9, "new")).delete(range(20)).compact()
    assert len(grown) == 29
    assert grown.top(queries[0], k=1)[0].example.id in {hit.example.id for hit in index.top(queries[0], k=40)} | {
        example.id for example in make_corpus(9, "new")
    }


def test_tfidf_says_what_it_lacks() -> None:
    with pytest.raises(NotFittedError, match=r"tfidf: has not seen the training corpus\. Call fit\(train\) first"):
        TfidfAttributor().encode_train(make_corpus(2))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "airep",
            {},
            r"method 'airep': does not exist; expected one of airrep, .* and \d+ more\. Did you mean 'airrep'\?$",
        ),
        ("logra", {}, r"method 'logra': 'lm' is not set and has no default\. Pass --lm MODEL\."),
        ("stack", {}, "--recipe"),
        ("readout", {}, "--method rds"),
        ("tfidf", {"ngram": 2}, "'ngram' is not a setting here; expected one of min_count, ngrams"),
        ("tfidf", {"ngrams": 0}, "ngrams=0: input should be greater than or equal to 1"),
        ("airrep", {"precision": "float8"}, "precision='float8': input should be"),
    ],
)
def test_bad_settings_are_told(name: str, values: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_attributor(name, values)


def test_paths_in_settings_are_taken_as_text(tmp_path: Path) -> None:
    (recipe := tmp_path / "recipe.yaml").write_text("- method: bm25\n- method: ngram\n")
    for method, name, path in (("channels", "channels", recipe), ("airrep", "encoder", tmp_path)):
        made = make_attributor(method, {name: path})
        assert made.settings == make_attributor(method, {name: str(path)}).settings


def test_airrep_features_are_the_encoders() -> None:
    train = make_corpus(6)
    attributor = make_attributor("airrep", {"precision": "float32"})
    expected = load_encoder("default", precision="float32").encode(train)
    np.testing.assert_array_equal(attributor.encode_train(train), expected)
    assert attributor.pool == "attention"
    assert make_attributor("gte", OFFLINE["gte"]).pool == "sum"


def test_changed_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model"
    shutil.copytree(Path(airrep.__file__).parent / "models" / "untrained", model)
    monkeypatch.chdir(tmp_path)
    train = make_corpus(3)
    airrep.build_index(train, "index", "airrep", settings={"encoder": "model"})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(airrep.Index("../index").top(train, k=1)) == 3
    card = (model / "airrep.json").read_text()
    (model / "airrep.json").write_text(card.replace("Question", "Q"))
    with pytest.raises(ArtifactError, match="was built with another model or other settings"):
        airrep.Index("../index").top(train, k=1)


def test_an_encoder_trained_for_means_or_other_sizes_says_so(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "encoder", ((16, 16, True),))
    card = folder / "airrep.json"
    trained = {"trained_for_attribution": True, "trained_group_sizes": [10, 20], "trained_pool": "mean"}
    card.write_text(json.dumps(json.loads(card.read_text()) | trained))
    train = make_corpus(50)
    index = airrep.build_index(train, tmp_path / "index", settings={"encoder": str(folder)})
    fits = index.group_scores(train[:3], [range(5), range(40)])
    assert (fits.provenance.pool, fits.provenance.caution) == ("mean", "")
    small = index.group_scores(train[:3], [range(4)]).provenance.caution
    assert small.startswith("These groups have 4 members, but the encoder was trained on groups of 10 to 20.")
    other = index.group_scores(train[:3], [range(10)], "attention").provenance.caution
    assert other == "The encoder was trained for groups scored with --pool mean, not attention."


@pytest.mark.parametrize("learnt", ["response", None])
def test_an_encoder_that_learnt_from_another_view_says_so(tmp_path: Path, learnt: str | None) -> None:
    folder = tiny_folder(tmp_path / "encoder", ((16, 16, True),))
    card = folder / "airrep.json"
    training = {"settings": {} if learnt is None else {"view": learnt}}
    card.write_text(json.dumps(json.loads(card.read_text()) | {"trained_for_attribution": True, "training": training}))

    def caution(**settings: str) -> str:
        index = airrep.build_index(
            make_corpus(4), tmp_path / "index", "airrep", settings={"encoder": str(folder), **settings}, replace=True
        )
        return index.attributor.caution

    view, other = learnt or "whole", "response" if learnt is None else "whole"
    words = f"The encoder was trained with view={view}, but reads view={other} here. Set view={view}: "
    words += "with --set, or in the settings of this method in a recipe (list of methods)."
    assert caution(view=view) == ""
    assert caution(view=other) == words
    if learnt is not None:
        assert caution() == words


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A tiny LM with room for long examples."""
    return tiny_lm(tmp_path / "lm", max_position_embeddings=4096)


def rds(folder: str, **settings: Any) -> Attributor:
    """The method with an LM, in float32 on the CPU."""
    return make_attributor("rds", {"lm": folder, "precision": "float32", "device": "cpu", **settings})


@pytest.mark.parametrize(
    "settings", [{}, {"layer": 1, "tokens": "last"}, {"layer": 0, "precision": "bfloat16"}], ids=str
)
def test_rds_conforms(settings: dict[str, Any], folder: str) -> None:
    airrep.check_attributor(lambda: rds(folder, **settings))


def test_features_are_the_hidden_states_of_the_lm(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.attributors.language._WINDOW", 5)
    lm = load_lm(LmSettings(lm=folder, precision="float32", device="cpu"))
    examples, done = some_examples(12), []
    documents = lm.tokenise(examples)
    for layer, tokens in ((-1, "mean"), (1, "last")):
        found = rds(folder, layer=layer, tokens=tokens).encode_train(examples, done.append)
        np.testing.assert_allclose(found, lm.hidden_states(documents, layer, tokens), rtol=1e-5, atol=1e-6)
    assert done == [5, 5, 2] * 2


def test_the_fingerprint_covers_lm_layer_and_tokens_and_no_execution(folder: str, tmp_path: Path) -> None:
    other = tiny_lm(tmp_path / "other", seed=1, max_position_embeddings=4096)
    different = [
        rds(folder), rds(folder, layer=1), rds(folder, tokens="last"), rds(folder, max_tokens=64),
        rds(folder, template="plain text {prompt} {response}"), rds(other),
    ]  # fmt: skip
    assert len({each.fingerprint for each in different}) == len(different)
    same = rds(folder, batch_tokens=64, precision="bfloat16")
    assert same.fingerprint == different[0].fingerprint
    assert (dict(same.execution), dict(different[0].execution)) == ({"precision": "bfloat16"}, {"precision": "float32"})


def test_an_index_answers_like_the_attributor(folder: str, tmp_path: Path) -> None:
    train = Corpus.from_examples(Example(f"p{number}", "abcdefghij"[: 1 + number], f"e{number}") for number in range(9))
    settings = {"lm": folder, "precision": "float32", "device": "cpu"}
    index = airrep.build_index(train, tmp_path / "index", "rds", settings=settings, shard_rows=4)
    features = rds(folder).encode_train(train)
    scores = features[:2] @ features.T
    for row, hits in zip(scores, airrep.Index(index.path).top(train[:2], k=3), strict=True):
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(row)[::-1][:3], rtol=1e-2)
    result = index.group_scores(train[:2], [range(4), range(9)])
    assert result.provenance.pool == "sum"
    np.testing.assert_allclose(result.scores[:, 1], scores.sum(axis=1), rtol=1e-2)


def test_a_layer_that_is_not_there_is_refused_with_their_number(folder: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rds(folder, layer=3).encode_train(some_examples(2))
    assert str(caught.value).startswith(f"lm {folder}: layer is 3, but the LM has 2 layers. Choose -1")
    with pytest.raises(ConfigError, match="layer is -2, but the LM has 2 layers"):
        rds(folder, layer=-2).encode_train(some_examples(2))
