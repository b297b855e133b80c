"""Near duplicates against all pairs of sets."""

from collections.abc import Hashable, Sequence
from itertools import product

import numpy as np
import pytest

from airrep.answers.likeness.duplicates import find_duplicates
from airrep.answers.texts import Templates


def ngrams(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split()
    return set(zip(words, words[1:], words[2:], strict=False)) or {tuple(words)}


def plain(texts: list[str], threshold: float) -> list[tuple[int, int, float]]:
    """Each text against all kept ones before it."""
    kept: list[int] = []
    found = []
    for place, text in enumerate(texts):
        shares = [(len(a & b) / len(a | b), other) for other in kept for a, b in [(ngrams(text), ngrams(texts[other]))]]
        best = max(shares, key=lambda pair: (pair[0], -pair[1]), default=(0.0, -1))
        if best[0] >= threshold:
            found.append((place, best[1], best[0]))
        else:
            kept.append(place)
    return found


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8, 1.0])
def test_no_pair_is_missed(threshold: float) -> None:
    random = np.random.default_rng(3)
    words = [f"w{number}" for number in range(12)]
    texts = []
    for _ in range(40):
        one = random.choice(words, int(random.integers(1, 30))).tolist()
        texts.append(" ".join(one))
        for _ in range(3):
            other = list(one)
            other[int(random.integers(len(other)))] = str(random.choice(words))
            texts.append(" ".join(other))
    random.shuffle(texts)
    found = find_duplicates(texts, threshold).duplicates
    assert [tuple(one) for one in found] == [pytest.approx(one) for one in plain(texts, threshold)]
    assert len(found) > 3


def test_case_width_and_punctuation_do_not_matter() -> None:
    texts = ["Who wrote it, and when?", "who WROTE it and　when", "...", "...", "???", "who wrote that and when"]
    found = find_duplicates(texts, 0.8).duplicates
    assert [(one.place, one.first, one.share) for one in found] == [(1, 0, 1.0), (3, 2, 1.0)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("if (x < 5) then stop, else go on with the loop", "if (x > 5) then stop, else go on with the loop"),
        ("close the brackets: [ { (", "close the brackets: [ ( {"),
        ("what is 7 + 5 in all", "what is 7 - 5 in all"),
        ("is it warmer than 5 degrees outside", "is it warmer than -5 degrees outside"),
        ("a → b holds for all of them", "a ← b holds for all of them"),
        ("( [ <", "( [ {"),
    ],
)
def test_texts_of_other_operators_are_no_duplicates(one: str, other: str) -> None:
    """Words leave signs out, so that these were told as the same and dropped."""
    rest = " ".join(f"word{number}" for number in range(60))
    for ending in ("", f" {rest}", f" {rest} here", f" {rest} there"):
        assert pairs([f"{one}{ending}", f"{other}{ending}"]) == []
    texts = [f"{one} {rest}", f"{other} {rest}", f"{other} {rest}!", f"{one.upper()} {rest} so"]
    assert pairs(texts) == [(2, 1), (3, 0)]


def test_signs_of_prose_make_no_difference() -> None:
    prose = "He said: 'Well, it's twenty-five - or not?' And then he left"
    others = [prose.replace("'", '"'), prose.replace(" - ", " — "), prose.replace("-f", "\u2010f"), f"{prose}…"]
    assert pairs([prose, *others]) == [(place, 0) for place in range(1, 5)]


def test_many_texts_of_the_same_words_are_told_by_their_operators() -> None:
    text = said(100)
    texts = [f"{text} {'<>'[place % 2]} 5" for place in range(30)] + [said(30) for _ in range(30)]
    assert pairs(texts) == [(place, place % 2) for place in range(2, 30)]
    near = f"{changed(text, 0)} = 5"
    assert pairs([*texts, near, near]) == [*pairs(texts), (60, 0), (61, 0)]


def test_long_texts_are_no_trouble() -> None:
    texts = [" ".join(f"{a}{b}" for a, b in product(range(300), range(300))), "x" * 1_000_000, "\x00\ud7ff" * 10]
    assert [one.place for one in find_duplicates([*texts, *texts], 0.9).duplicates] == [3, 4, 5]


RANDOM = np.random.default_rng(7)
WORDS = [f"word{number}" for number in range(5000)]


def said(count: int) -> str:
    return " ".join(RANDOM.choice(WORDS, count).tolist())


def changed(text: str, place: int) -> str:
    words = text.split()
    words[place] = "another"
    return " ".join(words)


def pairs(texts: list[str], threshold: float = 0.8, records: Sequence[Hashable] | None = None) -> list[tuple[int, int]]:
    return [(one.place, one.first) for one in find_duplicates(texts, threshold, records).duplicates]


def test_a_shared_system_prompt_makes_no_duplicates_and_hides_none() -> None:
    """400 chats of one system prompt of 400 words were all told, as they shared most of their words."""
    system, chats = said(400), [said(30) for _ in range(400)]
    chats += [changed(chats[5], 0), chats[6], changed(chats[7], 15)]  # the last changes 3 of 28 n-grams: 0.81
    assert pairs([f"{system} {chat}" for chat in chats]) == pairs(chats) == [(400, 5), (401, 6), (402, 7)]


def test_copies_are_found_even_where_most_texts_are_copies() -> None:
    text = said(40)
    texts = [text] * 30 + [said(40) for _ in range(20)] + [changed(text, 39)]
    assert pairs(texts) == [*((place, 0) for place in range(1, 30)), (50, 0)]
    assert pairs([f"{text} {place % 12}" for place in range(36)])[-12:] == [(24 + place, place) for place in range(12)]


def test_in_small_data_nothing_is_common() -> None:
    head = said(60)
    for count in (2, 5, 10):
        texts = [f"{head} {said(3)}" for _ in range(count)]
        assert pairs(texts) == [(place, 0) for place in range(1, count)]


def test_phrases_that_many_texts_have_are_no_templates() -> None:
    """Common 3-grams alone change no similarity: those of a template stand in stretches of 8 words."""
    texts = [f"{said(6)} one of the most {said(6)} as well as a {said(6)}" for _ in range(60)]
    texts += [changed(texts[0], 0), changed(texts[1], 24)]
    found = find_duplicates(texts, 0.8).duplicates
    assert [tuple(one) for one in found] == [pytest.approx(one) for one in plain(texts, 0.8)]
    assert len(found) == 2


def test_near_copies_are_found_however_many_they_are() -> None:
    """More than 10 near copies of a text, none of them the same, were taken for a template and not told."""
    text, others = said(60), [said(60) for _ in range(200)]
    for count in (5, 12, 40, 150):
        copies = [text, *(changed(text, int(place)) for place in RANDOM.integers(60, size=count))]
        texts = [*others[:100], *copies, *others[100:]]
        wanted = [(place, 100) for place in range(101, 101 + count)]
        assert pairs(texts) == wanted
        system = said(200)
        assert pairs([f"{system} {one}" for one in texts], 0.9) == wanted


def test_words_put_in_left_out_or_cut_off_make_near_copies() -> None:
    text = said(60).split()
    copies = [[*text[:n], "more", *text[n:]] for n in range(5, 50, 5)]
    copies += [[*text[:n], *text[n + 2 :]] for n in range(6, 50, 5)] + [text[:55], text[4:]]
    texts = [" ".join(words) for words in ([text, *copies, *(said(60).split() for _ in range(50))])]
    assert pairs(texts) == [(place, 0) for place in range(1, 1 + len(copies))]


def edited(text: str, kind: str, random: np.random.Generator) -> str:
    words = text.split()
    place, new = int(random.integers(len(words))), [f"new{number}" for number in random.integers(10**6, size=4)]
    changes = {
        "insert": (place, place, new[:1]),
        "insert two": (place, place, [new[0], *words[place : place + 1], new[1]]),
        "phrase": (place, place, new),
        "delete": (place, place + 1, []),
        "replace": (place, place + 1, new[:1]),
        "append": (len(words), len(words), new[:2]),
        "prefix": (0, 0, new[:2]),
    }
    start, end, put = changes[kind]
    words[start:end] = put
    return " ".join(words)


@pytest.mark.parametrize("count", [12, 40])
@pytest.mark.parametrize("kind", ["insert", "insert two", "phrase", "delete", "replace", "append", "prefix"])
def test_copies_changed_in_any_way_are_told_as_between_all_pairs(kind: str, count: int) -> None:
    """From the eleventh on, copies with a phrase put in, or words in front or at the end, were not told."""
    for seed in range(3):
        random = np.random.default_rng(seed)
        text = " ".join(random.choice(WORDS, int(random.integers(110, 300))))
        kinds = [kind] * count
        if kind in ("append", "prefix"):  # a third of them: the same change in half would be a template's
            kinds[count // 3 :] = ["replace"] * (count - count // 3)
        copies = [edited(text, one, random) for one in kinds]
        texts = [*(" ".join(random.choice(WORDS, 100)) for _ in range(15)), *copies]
        wanted = [place for place, _, _ in plain(texts, 0.8)]
        assert [place for place, _ in pairs(texts)] == wanted
        assert len(wanted) > count / 2


def test_a_template_with_a_changed_word_makes_no_copies() -> None:
    """What is filled in differs, whatever else was changed."""
    random = np.random.default_rng(5)
    head, tail = said(100), said(60)
    for kind in ("insert", "phrase", "delete", "replace"):
        assert pairs([f"{edited(head, kind, random)} slot{n} {tail}" for n in range(40)]) == []
        assert pairs([f"{edited(head, kind, random)} {tail} slot{n} slot{n + 1}" for n in range(40)]) == []


def test_what_is_filled_into_a_template_makes_no_copies() -> None:
    """Their words differ in one place alone, however few they are and however many share them."""
    head, tail = said(40), said(20)
    for words in (1, 2, 6):
        slots = [" ".join([f"slot{n}", *said(words).split()][:words]) for n in range(60)]
        assert pairs([f"{head} {slot} {tail}" for slot in slots]) == []
        assert pairs([f"{head} {tail} {slot}" for slot in slots]) == []
    places, tones = [said(2) for _ in range(4)], [said(1) for _ in range(3)]
    assert pairs([f"{head} {places[n % 4]} {tail} {tones[n % 3]} end{n}" for n in range(240)]) == []
    assert pairs([f"{head} {n % 28} may {2000 + n % 20} {tail} {said(12)}" for n in range(300)]) == []  # a date
    assert pairs([f"{head} {tail} end{n}" for n in range(12)]) == []
    heads = [said(60) for _ in range(5)]
    assert pairs([f"{heads[n % 5]} {said(8)}" for n in range(200)]) == []


def test_what_was_taken_for_templates_is_told() -> None:
    system, other = said(30), said(10)
    texts = [f"{system} {said(20)}" for _ in range(40)] + [f"{said(20)} {other}" for _ in range(15)] + [said(30)] * 30
    told = find_duplicates([*texts, texts[0]], 0.8).templates
    assert told == Templates(stretches=23 + 3, texts=56, commonest=" ".join(system.split()[:8]), commonest_texts=40)
    assert find_duplicates([said(30)] * 30, 0.8).templates is None


def test_texts_of_one_record_are_no_duplicates_of_each_other() -> None:
    text, other = said(30), said(30)
    texts = [text, text, changed(text, 0), other, text, changed(other, 0)]
    assert pairs(texts, records=["a", "a", "a", "b", "c", "d"]) == [(4, 0), (5, 3)]
    copies = [other, *(changed(other, place) for place in range(2, 28, 2))]
    assert pairs(copies, records=[place // 2 for place in range(14)]) == [(place, 0) for place in range(2, 14)]
    turns = [f"{text} {said(1)}" for _ in range(20)]  # those of a long chat make no template
    texts = [*turns, changed(turns[0], 0), *(said(20) for _ in range(20))]
    assert pairs(texts, records=["chat"] * 20 + list(range(21))) == [(20, 0)]  # type: ignore[operator]
