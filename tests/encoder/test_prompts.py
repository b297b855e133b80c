"""Prompts of encoders: whose they are, what they are put before, what they change."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.tiny_bert import TEXTS, tiny_folder

import airrep
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.encoder.base import Encoder
from airrep.encoder.cards import SETTINGS, Prompts, choose_prompts
from airrep.encoder.load import load_encoder
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.runtime.settings import read_settings

OWN = {"query": "question: ", "document": "answer: ", "other": "z "}


def with_prompts(folder: Path, prompts: object, default: object = None, pooling: dict[str, Any] | None = None) -> Path:
    """A tiny encoder with prompts of its own, and changes to its pooling."""
    tiny_folder(folder)
    settings = json.loads((folder / SETTINGS).read_text())
    (folder / SETTINGS).write_text(json.dumps(settings | {"prompts": prompts, "default_prompt_name": default}))
    path = folder / "1_Pooling" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | (pooling or {})))
    return folder


def load(folder: Path, **settings: Any) -> Encoder:
    """The encoder of a folder, in float32 on the CPU."""
    return load_encoder(folder, precision="float32", device="cpu", **settings)


@pytest.mark.parametrize("pooling", [{}, {"pooling_mode": "cls"}, {"include_prompt": False}], ids=str)
def test_queries_and_training_examples_are_encoded_as_the_library_does(pooling: dict[str, Any], tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = with_prompts(tmp_path / "encoder", OWN, pooling=pooling)
    encoder = load(folder)
    assert encoder.packed == (not pooling)
    library = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    wanted = library.encode_query(TEXTS), library.encode_document(TEXTS), library.encode(TEXTS)
    np.testing.assert_allclose(encoder.encode_texts(TEXTS, queries=True), wanted[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_texts(TEXTS), wanted[1], rtol=1e-4, atol=1e-5)
    none = load(folder, query_prompt="", train_prompt="")
    for queries in (False, True):
        np.testing.assert_allclose(none.encode_texts(TEXTS, queries=queries), wanted[2], rtol=1e-4, atol=1e-5)
    assert np.abs(wanted[0] - wanted[2]).max() > 1e-2


@pytest.mark.parametrize(
    ("own", "default", "asked", "wanted"),
    [
        (OWN, None, (None, None), ("question: ", "answer: ")),
        (OWN, None, ("", ""), ("", "")),
        (OWN, None, ("other", "Read: "), ("z ", "Read: ")),
        ({"query": "q: "}, None, (None, None), ("q: ", "")),
        ({"query": "q: ", "passage": "p: ", "corpus": "c: "}, None, (None, None), ("q: ", "p: ")),
        ({"all": "a: "}, "all", (None, None), ("a: ", "a: ")),
        ({"all": "a: ", "query": "q: "}, "all", (None, None), ("q: ", "a: ")),
        ({"query": "", "document": None}, None, (None, None), ("", "")),
        ({"query": "q: ", "document": "", "passage": "p: "}, None, (None, None), ("q: ", "")),
        ({"query": "", "all": "a: "}, "all", (None, None), ("", "a: ")),
        ({"query": "", "document": "", "all": "a: "}, "all", (None, None), ("", "")),
        ({"query": "", "document": "", "all": "a: "}, "all", ("all", "all"), ("a: ", "a: ")),
        ({}, None, (None, "Instruct: find.\nQuery: "), ("", "Instruct: find.\nQuery: ")),
    ],
)
def test_a_prompt_is_the_models_own_unless_another_is_asked_for(
    own: dict[str, str | None], default: str | None, asked: tuple[str, str], wanted: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / SETTINGS).write_text(json.dumps({"prompts": own, "default_prompt_name": default}))
    assert choose_prompts(tmp_path, "x", *asked) == Prompts(*wanted)


@pytest.mark.parametrize(
    ("prompts", "default"),
    [({"passage": "p: "}, None), ({"all": "a: "}, "all"), ({"query": "q: ", "passage": "p: "}, None), (OWN, "other")],
)
def test_prompts_the_library_saves_are_taken(prompts: dict[str, str], default: str | None, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    bare = str(tiny_folder(tmp_path / "bare"))
    SentenceTransformer(bare, device="cpu", prompts=prompts, default_prompt_name=default).save(str(tmp_path / "saved"))
    encoder, library = load(tmp_path / "saved"), SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    for queries, encode in ((True, library.encode_query), (False, library.encode_document)):
        np.testing.assert_allclose(encoder.encode_texts(TEXTS, queries=queries), encode(TEXTS), rtol=1e-4, atol=1e-5)


def test_an_empty_prompt_on_a_command_line_is_none(tmp_path: Path) -> None:
    folder = str(with_prompts(tmp_path / "encoder", OWN))
    for given, wanted in (([], "question: "), (["query_prompt="], ""), (["query_prompt=null"], "question: ")):
        settings = read_settings(given) | {"encoder": folder, "device": "cpu"}
        assert make_attributor("gte", settings).encoder.prompts == Prompts(wanted, "answer: ")


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("### Question:\n{prompt}\n\n### Answer:\n{response}", None),
        ("{prompt}{response}", None),
        ("[INST] {prompt} [/INST] {response}", None),
        ("<s>{prompt}\n{response}", None),
        ("query: ", None),
        ("runs/my #1 folder", None),
        ("'{prompt} {response}'", "{prompt} {response}"),
        ('"{prompt}\\n{response}"', "{prompt}\n{response}"),
        ("1e-4", "1e-4"),
        ("0.5", 0.5),
        ("null", ()),
        ("[0.9, 0.95]", [0.9, 0.95]),
        ("{a: 1}", {"a": 1}),
    ],
)
def test_a_text_on_a_command_line_is_what_was_typed(typed: str, wanted: Any) -> None:
    expected = typed if wanted is None else wanted or None  # (): null
    assert read_settings([f"template={typed}"]) == {"template": expected}


def test_spaces_around_the_equals_sign_are_no_part_of_a_text() -> None:
    assert read_settings(["lm = runs/lm ", "k = 5"]) == {"lm": "runs/lm", "k": 5}


def test_a_model_without_settings_has_no_prompts(tmp_path: Path) -> None:
    assert choose_prompts(tmp_path, "x", None, None) == Prompts("", "")


def test_a_word_that_names_no_prompt_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    folder = with_prompts(tmp_path / "encoder", OWN)
    with pytest.raises(ConfigError, match=r"query_prompt='querry': .*its prompts: document, other, query\. "):
        load(folder, query_prompt="querry")
    with pytest.raises(ConfigError, match=r"^encoder default: train_prompt='query': .*its prompts: none\. "):
        load_encoder(train_prompt="query")


@pytest.mark.parametrize("prompts", [["query"], {"query": 3}])
def test_settings_of_another_form_are_refused(prompts: object, tmp_path: Path) -> None:
    folder = with_prompts(tmp_path / "encoder", prompts)
    with pytest.raises(DataError, match=r"prompts must map names to texts"):
        load(folder)


def test_fingerprints_hold_prompts_only_where_there_are_some(tmp_path: Path) -> None:
    plain, same = tiny_folder(tmp_path / "plain"), with_prompts(tmp_path / "same", {"query": "", "document": ""})
    (tmp_path / "bare").mkdir()
    bare = tiny_folder(tmp_path / "bare" / "x")
    (bare / SETTINGS).unlink()
    folder = with_prompts(tmp_path / "own", OWN)
    none = load(folder, query_prompt="", train_prompt="")
    assert {load(each).fingerprint for each in (plain, same, bare)} == {none.fingerprint}
    others = [none, load(folder), load(folder, query_prompt=""), load(folder, train_prompt=""), load(plain)]
    assert len({encoder.fingerprint for encoder in others}) == 4


@pytest.mark.parametrize("query", ["b c: ", ""])
@pytest.mark.parametrize("pooling", [{}, {"pooling_mode": "cls"}], ids=str)
def test_a_saved_encoder_keeps_its_prompts(pooling: dict[str, Any], query: str, tmp_path: Path) -> None:
    folder = with_prompts(tmp_path / "encoder", {"all": "a "}, "all", pooling)
    encoder = load(folder, query_prompt=query, train_prompt="")
    encoder.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.prompts == encoder.prompts == Prompts(query, "")
    for queries in (False, True):
        found = again.encode_texts(TEXTS, queries=queries)
        np.testing.assert_allclose(found, encoder.encode_texts(TEXTS, queries=queries), rtol=1e-5, atol=1e-6)


def test_a_copy_in_the_airrep_format_keeps_its_prompts(tmp_path: Path) -> None:
    encoder = load(with_prompts(tmp_path / "encoder", OWN))
    encoder.save(tmp_path / "saved", "airrep")
    assert load(tmp_path / "saved").fingerprint == encoder.fingerprint


def test_an_index_of_an_encoder_with_prompts_asks_with_the_prompt_for_queries(tmp_path: Path) -> None:
    folder = with_prompts(tmp_path / "encoder", OWN)
    train = Corpus.from_examples(Example(text, "x", f"e{number}") for number, text in enumerate("abcdefgh"))
    settings = {"encoder": str(folder), "precision": "float32", "device": "cpu"}
    attributor = make_attributor("gte", settings)
    encoder = load(folder)
    np.testing.assert_array_equal(attributor.encode_queries(train), encoder.encode(train, queries=True))
    np.testing.assert_array_equal(attributor.encode_train(train), encoder.encode(train))
    index = airrep.build_index(train, tmp_path / "index", "gte", settings=settings)
    scores = encoder.encode(train[:1], queries=True) @ encoder.encode(train).T
    hits = airrep.Index(index.path).top(train[0], k=3)
    assert [hit.row for hit in hits] == np.argsort(-scores[0], kind="stable")[:3].tolist()
    (folder / SETTINGS).write_text((folder / SETTINGS).read_text().replace("question", "answer"))
    with pytest.raises(ArtifactError, match="was built with another model or other settings"):
        airrep.Index(index.path).top(train[0], k=3)


def test_methods_with_prompts_conform(tmp_path: Path) -> None:
    folder = with_prompts(tmp_path / "encoder", OWN)
    settings = {"encoder": str(folder), "query_prompt": "Find what taught this: ", "device": "cpu"}
    airrep.check_attributor(lambda: make_attributor("gte", settings))


def test_order_k_pools_need_one_prompt_for_both_sides(tmp_path: Path) -> None:
    prompted, plain = with_prompts(tmp_path / "prompted", OWN), tiny_folder(tmp_path / "plain")
    asked = {"query_prompt": "", "train_prompt": ""}
    for folder, settings, symmetric in ((plain, {}, True), (prompted, {}, False), (prompted, asked, True)):
        assert make_attributor("gte", {"encoder": str(folder), **settings}).symmetric is symmetric


def test_a_template_that_hides_the_view_is_refused(tmp_path: Path) -> None:
    folder = str(tiny_folder(tmp_path / "tiny"))
    method = make_attributor("airrep", {"encoder": folder, "template": "q {prompt}", "view": "response"})
    with pytest.raises(ConfigError, match=r"view=response reads only the response, but the template 'q \{prompt\}'"):
        method.encode_train([Example("a", "b", "c")])
    method = make_attributor("airrep", {"encoder": folder, "template": "q {prompt}"})
    assert method.encode_train([Example("a", "b", "c")]).any()
