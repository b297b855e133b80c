"""Audit: planted leaks by words and by meaning."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from worlds.small_world import HashAttributor

import airrep
from airrep.answers.audit import AuditResult, AuditSettings, Containment, Seen
from airrep.answers.mix import MixResult
from airrep.answers.texts import Templates
from airrep.corpus.corpus import Example
from airrep.errors import ArtifactError, ConfigError
from airrep.reports.answers import answer_tables

WORDS = [f"word{number}" for number in range(400)]


def text(start: int, count: int) -> str:
    return " ".join(WORDS[start : start + count])


def build(examples: list[Example], path: Path) -> airrep.Index:
    return airrep.build_index(airrep.Corpus.from_examples(examples), path, HashAttributor(), shard_rows=2)


@pytest.fixture
def world(tmp_path: Path) -> airrep.Index:
    """Training texts with what some items say inside them."""
    lines = [
        ("Intro. " + text(0, 20).upper() + "!", text(20, 10) + " and more of it"),
        (text(100, 11), "another answer altogether, which nobody would have given"),
        ("Nothing of the kind.", text(200, 12)),
        ("short one:", "One two, three; FOUR five"),
    ]
    return build([Example(*line, f"t{place}") for place, line in enumerate(lines)], tmp_path / "index")


def test_items_are_found_by_their_words(world: airrep.Index) -> None:
    items = [
        Example(text(0, 20), text(20, 10), "whole"),
        Example(text(100, 11), "the reference answer of the item is not in the data at all", "prompt alone"),
        Example("zz " + text(200, 11), text(300, 5), "half"),
        Example("One two", "three four", "short and there"),
        Example("One two", "three five", "short and not there"),
        Example("Is it", "so?", "too short"),
        Example("completely different words that no example has", "none of them anywhere", "clean"),
    ]
    result = airrep.audit(world, items)
    verdicts = ["contained", "contained", "nearly contained", "contained", "clean", "too short to tell", "clean"]
    assert [one.verdict for one in result.items] == verdicts
    assert [one.item.id for one in result.leaks] == ["whole", "prompt alone", "half", "short and there"]
    found = [one.text for one in result.items]
    told = [one and (one.part, one.example.id) for one in found[:4]]
    assert told == [("item", "t0"), ("prompt", "t1"), ("prompt", "t2"), ("item", "t3")]
    assert found[0] is not None
    assert (found[0].share, found[0].words) == (1.0, text(0, 30))
    assert result.encoder is None
    assert result.count("contained") == 3


def test_what_was_taken_for_templates_is_told(tmp_path: Path) -> None:
    train = [Example(f"{text(0, 20)} {text(30 + 9 * place, 9)}", "so it is", f"t{place}") for place in range(12)]
    index = build(train, tmp_path / "index")
    items = [Example(f"Well, {text(0, 12)}", text(300 + place, 9), f"q{place}") for place in range(3)]
    result = airrep.audit(index, [*items, Example(text(200, 9), text(220, 9), "other")])
    assert result.templates == Templates(stretches=5, texts=3, commonest=text(0, 8), commonest_texts=12)
    assert AuditResult.read(result.save(tmp_path / "run")) == result
    assert airrep.audit(index, items, where="id in ('t1', 't2')").templates is None


@pytest.mark.parametrize("form", ["system", "before", "around"])
def test_what_the_items_share_does_not_hide_their_leaks(tmp_path: Path, form: str) -> None:
    asked = [f"{text(9 * place, 9)} < 5" for place in range(12)]
    train = [Example(one, text(200 + place, 12), f"t{place}") for place, one in enumerate(asked)]
    index = build(train, tmp_path / "index")
    rules = " ".join(f"rule{number}" for number in range(60)) + ". -"
    prompts = {
        "system": [f"System: {rules}\nUser: {one}" for one in asked],
        "before": [f"{rules} {one}" for one in asked],
        "around": [f"{rules}\n\n{one}\n{rules[60:]}" for one in asked],
    }[form]
    items = [Example(one, "see key", f"q{place}") for place, one in enumerate(prompts)]
    found = airrep.audit(index, items).items
    assert [one.verdict for one in found] == ["contained"] * 12
    assert [one.text and (one.text.part, one.text.example.id) for one in found] == [("prompt", one.id) for one in train]
    other_signs = [replace(one, prompt=one.prompt.replace(" < 5", " > 5")) for one in items]
    assert [one.verdict for one in airrep.audit(index, other_signs).items] == ["nearly contained"] * 12
    new = [replace(one, prompt=one.prompt.replace("word", "other")) for one in items]
    assert [one.verdict for one in airrep.audit(index, new).items] == ["clean"] * 12
    few = airrep.audit(index, items[:4]).items  # of 4 items airrep cannot tell what is an instruction
    assert {one.verdict for one in few} == {"contained" if form == "system" else "clean"}


def test_items_of_other_signs_are_nearly_contained(tmp_path: Path) -> None:
    train = [
        Example("What is it?", "The sum is 7 - 5 + 2, or so", "minus"),
        Example("What is it?", "The sum is 7 + 5 - 2, or so", "plus"),
        Example("And how", "do you feel about it now 😍", "emoji"),
    ]
    index = build(train, tmp_path / "index")
    items = [
        Example("what is it", "the sum is 7 + 5 - 2 or so!", "its own signs, though not in the first of the words"),
        Example("What is it?", "The sum is 7 * 5 - 2, or so", "other signs"),
        Example("And how", "do you feel about it now 😡", "other emoji"),
        Example("And how", "do you feel about it now 😍", "same emoji"),
    ]
    found = airrep.audit(index, items).items
    verdicts = ["contained", "nearly contained", "nearly contained", "contained"]
    assert [one.verdict for one in found] == verdicts
    assert found[0].text is not None
    assert found[0].text.example.id == "plus"
    other = build(train[::-1], tmp_path / "other")
    assert [one.verdict for one in airrep.audit(other, items).items] == verdicts


def test_thresholds_decide(world: airrep.Index) -> None:
    item = [Example(text(0, 10) + " zzz", text(12, 9), "some")]
    share = 3 / 4  # of its prompt; of the whole item it is 5 / 13
    for nearly, verdict in ((share + 0.01, "clean"), (share - 0.01, "nearly contained")):
        for settings in ({"nearly": nearly}, AuditSettings(nearly=nearly)):
            assert airrep.audit(world, item, settings=settings).items[0].verdict == verdict


def test_items_alike_in_meaning(tmp_path: Path) -> None:
    """The real encoder: a paraphrase is nearer than another subject, and what it tells is the cosine."""
    train = [Example("How do I make a cup of coffee?", "Boil water and pour it over ground coffee.", "coffee")]
    train += [Example("Who painted the Mona Lisa?", "Leonardo da Vinci painted it.", "art")]
    index = airrep.build_index(airrep.Corpus.from_examples(train), tmp_path / "index")
    items = [Example("Describe how a cup of coffee is made.", "Pour boiling water over ground coffee.", "q")]
    result = airrep.audit(index, items, settings=AuditSettings(cosine=0.6))
    one = result.items[0]
    assert one.verdict == "alike in meaning"
    assert one.meaning is not None
    assert one.meaning.example.id == "coffee"
    encoder = airrep.make_attributor("airrep", {"encoder": "static"})
    vectors = encoder.encode_train([*train, *items])
    units = np.asarray(vectors, np.float64) / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert one.meaning.cosine == pytest.approx(float(units[0] @ units[2]), abs=2e-3)
    assert airrep.audit(index, items, settings=AuditSettings(cosine=1.0)).items[0].verdict == "clean"
    alone = airrep.build_index(
        airrep.Corpus.from_examples(train), tmp_path / "e", airrep.make_attributor("airrep", {"encoder": "static"})
    )
    same = airrep.audit(alone, items).items[0].meaning
    assert same is not None
    assert same.cosine == pytest.approx(one.meaning.cosine, abs=1e-4)
    assert AuditResult.read(result.save(tmp_path / "run")) == result
    with pytest.raises(ArtifactError, match="expected 'mix'"):
        MixResult.read(tmp_path / "run")


def test_texts_that_the_encoder_cannot_read_are_not_judged_by_meaning(tmp_path: Path) -> None:
    """Each word that its vocabulary lacks is one and the same token, so that such texts had a cosine of 1."""
    train = [Example("ประเทศไทย?", "กรุงเทพมหานคร!", "thai"), Example("😀 🎉?", "🚀!", "emoji")]
    train += [Example("Who painted the Mona Lisa?", "Leonardo da Vinci painted it.", "art")]
    items = [
        Example("ภาษาอังกฤษ?", "ยากที่สุดเลย!", "q1"),
        Example("🍕 🍔?", "🌍!", "q2"),
        Example("Hi.", "What? 🎉", "q3"),
    ]
    items += [Example("Who painted the Mona Lisa?", "Leonardo da Vinci has painted it.", "q4")]
    index = airrep.build_index(airrep.Corpus.from_examples(train), tmp_path / "index")
    result = airrep.audit(index, items, settings={"order": 30, "cosine": 0.9})
    assert [one.item.id for one in result.leaks] == ["q4"]
    assert [one.meaning and one.meaning.example.id for one in result.items] == [None, None, "art", "art"]
    assert result.not_judged == 2
    assert result.to_dict()["not_judged"] == 2
    assert (
        "Not compared by meaning, as the encoder does not know most of their words: 2 items."
        in answer_tables(result)[0].caption
    )
    assert AuditResult.read(result.save(tmp_path / "run")) == result
    foreign = airrep.audit(index, items, where="id != 'art'")
    assert [one.meaning for one in foreign.items] == [None] * 4
    assert foreign.not_judged == 4
    one = airrep.audit(index, items[:1])
    assert "does not know most of their words: 1 item." in answer_tables(one)[0].caption


def test_bad_questions_are_told(world: airrep.Index) -> None:
    with pytest.raises(ConfigError, match="items: is empty"):
        airrep.audit(world, [])
    for settings in ({"order": 3}, {"nearly": 0.99}, {"contained": 1.1}, {"cosine": 2.0}, {"cosine": float("nan")}):
        with pytest.raises(ConfigError, match="audit: "):
            airrep.audit(world, [Example("a", "b")], settings=settings)
    told = "'ordre' is not a setting here; expected one of contained, cosine, nearly, order"
    with pytest.raises(ConfigError, match=told):
        airrep.audit(world, [Example("a", "b")], settings={"ordre": 4})


def test_hostile_texts(world: airrep.Index) -> None:
    items = [
        Example("\x1b[31m" + "a " * 500_000, "\x01", "big"),
        Example("ﬁne … ①", "??", "odd"),
        Example("…", "!", "none"),
    ]
    verdicts = [one.verdict for one in airrep.audit(world, items).items]
    assert verdicts == ["clean", "too short to tell", "too short to tell"]


def test_templates_make_nothing_nearly_contained(tmp_path: Path) -> None:
    """Eleven prompts share a template: another item of it is clean, one that is there whole is contained."""
    template = "Consider carefully whether the following claim is true or false, and answer with one word only: "
    train = [Example(template + text(20 * n, 5), f"ans{n}", f"t{n}") for n in range(11)]
    train.append(Example(template + text(20 * 3, 5), "ans3", "again"))
    items = [Example(template + "the sea is wet", "true", "new"), Example(template + text(60, 5), "ans3", "old")]
    items.append(Example(template + text(40, 5).replace("word42", "other"), "ans2", "changed"))
    for count, verdicts in (
        (12, ["clean", "contained", "clean"]),
        (10, ["nearly contained", "contained", "nearly contained"]),
    ):
        index = build(train[:count], tmp_path / str(count))
        assert [one.verdict for one in airrep.audit(index, items).items] == verdicts
    found = airrep.audit(index, items[1:2]).items[0].text
    assert found is not None
    assert found.example.id == "t3"


def test_all_of_a_few_ngrams_that_no_template_has_is_not_contained(tmp_path: Path) -> None:
    template = text(0, 22)
    train = [Example(f"Task: {template}", f"answer {n}", f"t{n}") for n in range(40)]
    train.append(Example("a notice on the wall reads", f"{text(14, 8)} zebra lion no one is all out today", "other"))
    index = build(train, tmp_path / "index")
    (found,) = airrep.audit(index, [Example(f"{template} zebra lion", "no", "item")]).items
    assert found.text is not None
    assert (found.verdict, found.text.share, found.text.example.id) == ("nearly contained", 1.0, "other")


def test_a_shared_system_prompt_contains_no_item(tmp_path: Path) -> None:
    """Of 40 other questions under the system prompt of all chats most were called contained, for its words alone."""
    random = np.random.default_rng(5)

    def chat(number: int, end: str = "") -> Example:
        asked, answered = (" ".join(f"w{one}" for one in random.integers(10_000, size=12)) for _ in range(2))
        return Example(f"System: {text(0, 400)}\nUser: {asked}", answered + end, f"e{number}")

    train, items = [chat(number) for number in range(100)], [chat(number) for number in range(100, 140)]
    leaks = [
        train[3],
        Example(train[4].prompt, "another", "prompt"),
        Example(train[5].prompt, train[5].response + " x"),
    ]
    index = build(train, tmp_path / "index")
    found = airrep.audit(index, [*items, *leaks]).items
    assert [one.verdict for one in found] == ["clean"] * 40 + ["contained"] * 3
    assert [one.text and one.text.example.id for one in found[40:]] == ["e3", "e4", "e5"]
    few = build(train[:5], tmp_path / "few")
    assert airrep.audit(few, items[:1]).items[0].verdict == "clean"
    assert airrep.audit(few, train[:1]).items[0].verdict == "contained"


def test_what_was_copied_often_is_contained_still(tmp_path: Path) -> None:
    item = Example(text(0, 20), text(20, 10), "item")
    copies = [Example(item.prompt, item.response, f"copy {n}") for n in range(30)]
    solved = [Example(text(100, 20), f"{text(200, 10)} {n}", f"solved {n}") for n in range(30)]
    index = build([*copies, *solved], tmp_path / "index")
    nearly = Example(item.prompt.replace("word0 ", "other "), item.response, "nearly")
    found = airrep.audit(index, [item, nearly, Example(text(100, 20), "the answer", "solved")]).items
    assert [one.verdict for one in found] == ["contained", "contained", "contained"]


def test_short_questions_after_a_system_prompt_are_not_nearly_contained(tmp_path: Path) -> None:
    """Alone they are too short to be looked for; after a system prompt they were long enough."""
    system = f"System: {text(0, 60)}\nUser: "
    train = [Example(f"{system}{text(100 + 5 * n, 5)}", text(300, n), f"t{n}") for n in range(1, 20)]
    index = build(train, tmp_path / "index")
    items = [Example(f"{system}{text(110, 4)} or", "a long answer that nobody has given so far", "short")]
    items.append(Example(train[1].prompt, "a long answer that nobody has given so far", "the same prompt"))
    assert [one.verdict for one in airrep.audit(index, items).items] == ["clean", "contained"]


def test_a_share_is_that_of_different_ngrams(world: airrep.Index) -> None:
    one = airrep.audit(world, [Example(text(0, 12), text(350, 20), "part")]).items[0]
    assert one.text is not None
    assert (one.text.part, one.text.share) == ("prompt", 1.0)
    looked = Containment([text(0, 12) + " " + text(350, 20), "a b c d e f g h a b c d e f g h"], 8)
    examples = [(5, text(0, 30)), (6, text(2, 10)), (7, "x a b c d e f g h y"), (8, "a b c d e f g h")]
    looked.see(Seen(*example) for example in examples)
    assert looked.found == [(5 / 25, 5), (1 / 8, 7)]
    assert looked.same_words(0, text(3, 100)) == text(3, 9)


def test_common_ngrams_are_not_looked_for_again() -> None:
    looked = Containment([text(0, 20), text(0, 8)], 8)
    examples = [Seen(row, f"{text(0, 10)} {row}") for row in range(4)] + [Seen(4, text(3, 12)), Seen(5, text(0, 20))]
    looked.see(examples)
    assert looked.found == [(1.0, 5), (1.0, 0)]
    rare = looked.without_common(4)  # the n-grams from word 0, 1 and 2 stand in five
    rare.see(examples[:5])
    assert rare.found == [(5 / 10, 4), (0.0, -1)]
    assert rare.same_words(0, text(0, 12)) == text(3, 9)
    looked = Containment([text(0, 20)], 8)  # equal examples and parts of a record make nothing common
    looked.see(Seen(row, text(0, 20).upper()) for row in range(20))
    looked.see(Seen(row, f"{text(0, 20)} {row}", "chat") for row in range(20, 40))
    rare = looked.without_common(2)
    rare.see([Seen(40, text(0, 12))])
    assert rare.found == [(5 / 13, 40)]


@pytest.mark.parametrize(
    "form",
    [
        "{asked} Answer briefly and only from the passage above, please. {more}",
        "{more} {shared} {asked}",
        "{shared}\n{asked}",
    ],
)
def test_exact_copies_of_items_with_an_instruction_inside_are_contained(tmp_path: Path, form: str) -> None:
    shared = "Is this sentence true, given all that was said before it?"
    texts = [form.format(asked=text(9 * n, 5), more=text(300 + 30 * n, 5), shared=shared) for n in range(12)]
    rows = [Example(one, f"word{800 + place}", f"t{place}") for place, one in enumerate(texts)]
    index = build(
        [*rows, *(Example(text(900 + place, 9), "other", f"o{place}") for place in range(9))], tmp_path / "index"
    )
    items = [Example(row.prompt, row.response, f"q{place}") for place, row in enumerate(rows)]
    found = airrep.audit(index, items).items
    assert [one.verdict for one in found] == ["contained"] * 12
    assert [one.text and one.text.example.id for one in found] == [row.id for row in rows]
