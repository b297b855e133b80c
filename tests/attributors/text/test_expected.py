"""What a language model expects counts less: against probabilities of the plain network, a letter a token."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference.ngrams import ngrams
from worlds.double_lms import listed, plain, wide
from worlds.tiny_lms import CHAT, some_examples, tiny_lm, tiny_tokenizer

import airrep
from airrep.attributors import language
from airrep.attributors.methods import make_attributor
from airrep.attributors.text import ngram_lm
from airrep.attributors.text.tokens import BUNDLED, FoundTokens, tokenizer_of
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, DataError
from airrep.lm.chat import Chat
from airrep.lm.model import TargetLM, load_lm, shared_lm
from airrep.lm.settings import LmSettings

CHATS = {"plain": None, "chat": CHAT}
ASKED = [*some_examples(6), Example("a", "  é ü 漢  \n", "spaces"), Example("", "no prompt", "text")]


def make(lm: str, **settings: Any) -> Any:
    return make_attributor("ngram", {"lm": lm, "device": "cpu", "precision": "float32", **settings})


def spans_of_letters(text: str) -> FoundTokens:
    places = np.arange(len(text))
    return FoundTokens(places, places, places + 1)


def token_nats(lm: TargetLM, examples: list[Example]) -> list[np.ndarray]:
    """Loss of each response token, document by document, in float64."""
    found = []
    for ids, start in listed(lm.tokenise(examples)):
        with torch.no_grad():
            logits = plain(lm)(input_ids=torch.tensor([list(ids)])).logits[0].double()
        chances = logits.log_softmax(1)[start - 1 : -1]
        found.append(-chances.gather(1, torch.tensor(list(ids)[start:])[:, None])[:, 0].numpy())
    return found


@pytest.mark.parametrize("template", CHATS)
def test_each_letter_counts_what_the_network_does_not_expect(tmp_path: Path, template: str) -> None:
    folder = tiny_lm(tmp_path / "lm", tokenizer=tiny_tokenizer(chat=CHATS[template]))
    lm, wider = load_lm({"lm": folder, "precision": "float32", "device": "cpu"}), wide(folder)
    found = [spans_of_letters(one.response) for one in ASKED]
    for example, own, nats in zip(ASKED, ngram_lm.unexpected(lm, ASKED, found), token_nats(wider, ASKED), strict=True):
        trimmed = template == "chat" and example.prompt
        seen = example.response.strip() if trimmed else example.response
        place = 1 if template == "plain" and example.prompt else 0  # the space before a response is none of its letters
        wanted = np.zeros(len(example.response) + 1)
        for number, letter in enumerate(seen, example.response.find(seen)):  # some letters are two or three tokens
            count = len(letter.encode())
            wanted[number] = nats[place : place + count].sum()
            place += count
        wanted[-1] = nats[place:].sum()
        np.testing.assert_allclose(own, 1 - np.exp(-wanted), rtol=1e-4)


def test_a_word_counts_all_its_tokens_and_shares_those_that_it_has_a_part_of(tmp_path: Path) -> None:
    lm = load_lm({"lm": tiny_lm(tmp_path / "lm"), "precision": "float32", "device": "cpu"})
    example = Example("a", "ab cd", "x")
    letters, words = spans_of_letters(example.response), FoundTokens(*np.array([[0, 0, 2], [1, 3, 5]]).T)
    nats = -np.log1p(-ngram_lm.unexpected(lm, [example], [letters])[0])
    found = -np.log1p(-ngram_lm.unexpected(lm, [example], [words])[0])
    np.testing.assert_allclose(found, [nats[:2].sum(), nats[3:5].sum(), nats[5]], rtol=1e-5)
    shared = ngram_lm._spread("ab cd", np.array([3.0]), _places([0], [5]))
    np.testing.assert_allclose(shared, [0.75, 0.75, 0, 0.75, 0.75])
    np.testing.assert_allclose(ngram_lm._spread("  ", np.array([3.0]), _places([0], [2])), [1.5, 1.5])


def _places(starts: list[int], stops: list[int]) -> Any:
    from airrep.lm.chat import TokenPlaces

    return TokenPlaces(np.array(starts), np.array(stops))


def test_features_sum_what_the_last_tokens_count(tmp_path: Path) -> None:
    folder = tiny_lm(tmp_path / "lm")
    method = make(folder, orders=(1, 2), skip=0.5)
    train = Corpus.from_examples(some_examples())
    method.fit(train)
    query = Example("a", "abab", "q")
    split = tokenizer_of(folder)[0]
    counts = ngram_lm.unexpected(method.lm, [query], [split.find(query.response)])[0]
    wanted: dict[int, float] = {}
    for column, end in ngrams(split([query.response]).numbers, (1, 2), True):
        gap = (column - 1) // 2**26 == 2
        wanted[column] = wanted.get(column, 0.0) + counts[end] / 5 * (0.5 if gap else 1.0)
    found = method.encode_queries([query])
    assert dict(zip(found.indices.tolist(), found.data.tolist(), strict=True)) == pytest.approx(wanted, rel=1e-6)
    alike = make_attributor("ngram", {"tokenizer": folder, "orders": (1, 2), "skip": 0.5})
    alike.fit(train)
    assert (alike.encode_queries([query]).data > found.data).all()
    assert method.fingerprint != alike.fingerprint


def test_a_token_without_a_finite_loss_counts_whole_and_leaves_the_others(tmp_path: Path) -> None:
    example = Example("a", "abc", "x")
    losses = np.array([0.5, np.nan, 0.25, 1.0], np.float32)
    found = ngram_lm._misses(example, spans_of_letters("abc"), losses, _places([0, 1, 2, 3], [1, 2, 3, 3]))
    np.testing.assert_allclose(found, 1 - np.exp(-np.array([0.5, 1e3, 0.25, 1.0])), rtol=1e-12)


def test_examples_count_alike_alone_and_together(tmp_path: Path) -> None:
    folder = tiny_lm(tmp_path / "lm")
    method = make(folder)
    train = Corpus.from_examples(some_examples())
    method.fit(train)
    together = method.encode_train(list(train))
    for row, one in enumerate(train):
        alone = method.encode_train([one])
        np.testing.assert_array_equal(together[[row]].indices, alone.indices)
        np.testing.assert_allclose(together[[row]].data, alone.data, rtol=1e-4)


def test_two_channels_hold_one_model_which_reads_examples_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read = tiny_lm(tmp_path / "lm"), []
    held_lm, whole = make(folder).lm, TargetLM.token_losses  # loading one reads some tokens too
    monkeypatch.setattr(TargetLM, "token_losses", lambda lm, docs: read.append(len(docs)) or whole(lm, docs))
    tokens, words = make(folder), make(folder, tokenizer="words", copied=True)
    train = Corpus.from_examples(some_examples())
    for method in (tokens, words):
        method.fit(train)
        method.encode_train(list(train))
    assert tokens.lm is words.lm is held_lm
    assert read == [len(train)]
    words.encode_queries(train[:3])
    assert read == [len(train), 3]


@pytest.mark.parametrize(("held", "batches"), [(2**20, 4), (0, 12)])
def test_examples_of_several_batches_are_read_once_for_all_channels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, batches: int
) -> None:
    """Unless there is no room for what the first channel read."""
    folder, read = tiny_lm(tmp_path / "lm"), []
    held_lm, whole = make(folder).lm, TargetLM.token_losses  # loading one reads some tokens too
    monkeypatch.setattr(TargetLM, "token_losses", lambda lm, docs: read.append(len(docs)) or whole(lm, docs))
    monkeypatch.setattr("airrep.attributors.text.ngram_lm.TOGETHER", 3)
    monkeypatch.setattr(ngram_lm, "HELD", held)
    train = Corpus.from_examples(some_examples(12))
    found = []
    for method in (make(folder), make(folder, tokenizer="words"), make(folder)):
        method.fit(train)
        found.append(method.encode_train(list(train)))
    assert read == [3] * batches
    for part in ("data", "indices", "indptr"):  # as they are: whole rows would take 12 GB
        np.testing.assert_array_equal(getattr(found[0], part), getattr(found[2], part))
    assert held_lm.name == folder


def test_what_is_remembered_of_examples_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = make(tiny_lm(tmp_path / "lm"))
    train = Corpus.from_examples(some_examples(12))
    method.fit(train)
    memory = ngram_lm._Memory()
    sizes = [ngram_lm._size(memory.found(method.lm, train[n : n + 1])) for n in range(3)]
    monkeypatch.setattr(ngram_lm, "HELD", 3 * max(sizes))
    for n in range(3, 12):
        memory.found(method.lm, train[n : n + 1])
    assert memory._bytes == sum(map(ngram_lm._size, memory._known.values()))
    assert 2 <= len(memory._known) < 12
    assert memory._bytes <= ngram_lm.HELD


def test_the_contract_of_methods_holds() -> None:
    airrep.check_attributor(lambda: make(str(BUNDLED)))


def test_channels_read_one_language_model_and_each_corpus_is_looked_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_lm(tmp_path / "lm")
    method = make_attributor("channels", {"lm": folder, "device": "cpu", "channels": "lm-whole"})
    readers = [part.lm for part in method.parts if getattr(part.settings, "lm", None)]
    assert len(readers) == 4
    assert all(one is readers[0] for one in readers)
    looked: list[int] = []
    plain = Chat._reason
    monkeypatch.setattr(Chat, "_reason", lambda self, some: looked.append(len(some)) or plain(self, some))
    corpus = Corpus.from_examples(some_examples(20))
    assert not method.unusable(corpus)
    assert not readers[1].unusable(corpus)
    assert looked == [20]
    assert not readers[1].unusable(list(corpus))
    bad = Corpus.from_examples([*corpus, Example("a", "x" * 500, "long")])
    assert [list(readers[0].unusable(bad)), list(readers[0].unusable(bad))] == [[20], [20]]


@pytest.mark.parametrize("store", ["none", "kept"])
def test_losses_beside_gradients_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    folder, read = tiny_lm(tmp_path / "lm", "llama", tokenizer=tiny_tokenizer(chat=CHAT)), []
    shared = {"lm": folder, "device": "cpu", "precision": "float32"}
    small = {"store": store if store == "none" else str(tmp_path / store), "sample": 8, "rank": 2, "sketch": 64}
    channels = [{"method": "ngram", "settings": shared}, {"method": "logra", "settings": {**shared, **small}}]
    train, queries = Corpus.from_examples(some_examples(12)), some_examples(15)[12:]
    alone = make(folder)
    alone.fit(train)
    wanted = [alone.encode_train(list(train)), alone.encode_queries(queries)]
    plain = TargetLM.token_losses
    for again in range(2):  # the second time a store has them
        method = make_attributor("channels", {"channels": channels})
        method.load()
        monkeypatch.setattr(TargetLM, "token_losses", lambda lm, docs: read.append(len(docs)) or plain(lm, docs))
        language.heard_losses(method.parts[0].lm)._known.clear()
        ngram_lm._remembered.clear()
        method.fit(train)
        found = [method.encode(list(train))["ngram"]]
        method.parts[1].encode_queries(queries)
        found.append(method.parts[0].encode_queries(queries))
        assert not read, again
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one.indices, other.indices)
            np.testing.assert_allclose(one.data, other.data, rtol=1e-5, atol=1e-7)
        monkeypatch.undo()


def test_losses_that_are_remembered_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "HEARD", 3 * 8)
    heard = language.HeardLosses()
    for key in ("a", "b", "a", "c", "d"):
        heard.note(key, np.full(2, ord(key), np.float32))
    assert heard.of(["b", "a"]) is None
    assert np.array_equal(heard.of(["d", "a", "c"]) or [], [[100, 100], [97, 97], [99, 99]])


def test_a_model_that_changed_on_disk_is_loaded_again(tmp_path: Path) -> None:
    folder = tiny_lm(tmp_path / "lm")
    first = shared_lm(LmSettings(lm=folder, device="cpu"))
    assert shared_lm(LmSettings(lm=folder, device="cpu")) is first
    before = first.fingerprint
    tiny_lm(tmp_path / "lm", seed=1)
    assert shared_lm(LmSettings(lm=folder, device="cpu")).fingerprint != before


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    folder = tiny_lm(tmp_path / "lm")
    with pytest.raises(ConfigError, match="lm works only with view=response"):
        make(folder, view="prompt")
    with pytest.raises(DataError, match=r'the LM cannot read 1 of 1 example\. .*"long": .* has 10'):
        make(folder).fit(Corpus.from_examples([Example("a", "x" * 100, "long")]))
    with pytest.raises(DataError, match='"empty": its response is empty'):
        method = make(folder)
        method.fit(Corpus.from_examples(some_examples()))
        method.encode_queries([Example("a", " ", "empty")])
    assert make(folder).settings.tokenizer == folder
    assert make(folder, tokenizer="words").settings.tokenizer == "words"


def test_an_index_weighs_tokens_as_its_model_does(tmp_path: Path) -> None:
    folder = tiny_lm(tmp_path / "lm")
    settings = {"lm": folder, "device": "cpu", "channels": "text"}
    index = airrep.build_index(Corpus.from_examples(some_examples()), tmp_path / "index", "channels", settings=settings)
    again = airrep.Index(index.path)
    query = some_examples()[1]
    assert again.top([query], 3)[0].hits == index.top([query], 3)[0].hits
    assert {channel["settings"].get("lm") for channel in again.manifest["settings"]["channels"]} == {folder, None}


def test_a_text_behind_a_space_begins_as_its_words_do_elsewhere() -> None:
    behind = make_attributor("ngram", {"tokenizer": "subwords", "space": True})
    first, inside = (behind._tokens([Example("", text)]).numbers for text in ("water", "some water"))
    assert first[0] == inside[-1]
    plainly = make_attributor("ngram", {"tokenizer": "subwords"})
    assert plainly._tokens([Example("", "water")]).numbers[0] != first[0]
    assert len(behind._tokens([Example("", " ")]).numbers) == 0
    behind.fit(Corpus.from_examples([Example("p", "water"), Example("p", "some water")]))
    places = behind.places(Example("p", "water"))
    assert (places.starts.min(), places.stops.max()) == (2, 7)  # behind the prompt and a line's end
