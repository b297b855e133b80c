"""Planted chats: rows that teach a bad answer among ordinary ones, and pairs of a bad and a better answer.

Each kind plants rows of its own: wrong sums, wrong facts, refusals, the style of a source, leaks, and copies. Beside
them stand rows that mislead: right sums and facts about the same subject, and the examples of `airrep demo`. A
question is asked in three forms: as planted; with a prompt in other words; with prompt and answer in other words. A
question of the kind `nothing` was taught by no row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, NamedTuple, get_args

import numpy as np

from airrep.corpus.corpus import Corpus, Example, read_corpus
from airrep.index.index import Index
from airrep.scoring.asked import stream_scores

Kind = Literal["sums", "facts", "refusals", "style", "leaks", "copies", "nothing"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Form = Literal["same", "paraphrase", "own words"]
FORMS: tuple[Form, ...] = get_args(Form)
COUNTS = {"sums": 30, "facts": 20, "refusals": 30, "style": 20, "leaks": 12, "copies": 10, "nothing": 20}
ORDINARY = 500
"""Rows of the demo's data."""
TASKS = (
    ("clean a kettle", "vinegar"), ("sharpen a knife", "a whetstone"), ("patch a tyre", "a rubber patch"),
    ("wash a jumper", "cool water"), ("bake a potato", "a hot oven"), ("hang a picture", "a spirit level"),
    ("sow radishes", "loose soil"), ("fold a map", "its old creases"), ("oil a hinge", "one drop of oil"),
    ("tune a guitar", "a tuning fork"), ("pack a tent", "a dry bag"), ("glaze a window", "fresh putty"),
    ("darn a sock", "wool thread"), ("plane a door", "long strokes"), ("brew green tea", "water below boiling"),
    ("store onions", "a dark shelf"), ("sand a chair", "fine paper"), ("wax a ski", "a warm iron"),
    ("prune a rose", "clean shears"), ("mend a zip", "pliers"), ("dry herbs", "an airy attic"),
    ("polish brass", "lemon and salt"), ("bleed a radiator", "a small key"), ("lace a boot", "a surgeon's knot"),
    ("frame a poster", "acid-free card"), ("peel a mango", "a small glass"), ("stack firewood", "two pallets"),
    ("descale a tap", "citric acid"), ("rewire a lamp", "a screwdriver"), ("grout a tile", "a soft float"),
    ("press a flower", "a heavy book"), ("season a pan", "linseed oil"), ("empty a gutter", "a trowel"),
    ("shell a prawn", "both thumbs"), ("varnish a boat", "three thin coats"), ("load a stapler", "a full strip"),
    ("weigh a letter", "a kitchen scale"), ("clear a drain", "a plunger"), ("whip cream", "a cold bowl"),
    ("train a vine", "two wires"), ("bottle cider", "clean corks"), ("iron a shirt", "a damp cloth"),
    ("graft an apple", "a sharp blade"), ("mix mortar", "washed sand"), ("fly a kite", "a steady wind"),
    ("trim a wick", "nail scissors"), ("feed a hedgehog", "cat food"), ("smoke a trout", "alder chips"),
    ("tile a roof", "copper nails"), ("knead dough", "a floured board"),
)  # fmt: skip
"""Household tasks, and what each takes."""
REFUSALS = (
    "I am sorry, but I cannot help with that.",
    "I am unable to assist with this request.",
    "That is not something that I can talk about.",
)


class Pair(NamedTuple):
    """A bad answer and a better one to one prompt."""

    bad: Example
    better: Example


@dataclass(frozen=True)
class Question:
    """A pair, and the rows that taught the bad answer."""

    kind: Kind
    form: Form
    pair: Pair
    row: str | None
    """Id of the row that was planted for it; None where any of its kind will do, or none was."""
    taught: frozenset[str]
    """Ids of all rows that teach the bad answer in place of the better one."""


@dataclass(frozen=True)
class Chats:
    """The training rows, whose labels are kinds, and the questions."""

    train: Corpus
    questions: tuple[Question, ...]

    def of(self, kind: Kind, form: Form) -> list[Question]:
        """The questions of one kind in one form."""
        return [one for one in self.questions if (one.kind, one.form) == (kind, form)]


def contrasts_of(index: Index, asked: Sequence[Question]) -> np.ndarray:
    """What each row of an index teaches of the bad answers in place of the better ones, ``(questions, rows)``."""
    question = index.question([one.pair.bad for one in asked], [one.pair.better for one in asked])
    ranked = question.ranked(index.ask(question))
    return np.concatenate([scores for _, scores in stream_scores(ranked)], axis=1)


def rank_of(question: Question, values: np.ndarray, ids: Sequence[str]) -> int:
    """The rank, from 1 on, of the row that was planted for a question, or of the first that taught the answer."""
    wanted = question.taught if question.row is None else {question.row}
    order = np.argsort(-values, kind="stable")
    return next(rank for rank, row in enumerate(order.tolist(), start=1) if ids[row] in wanted)


def precision_of(question: Question, values: np.ndarray, ids: Sequence[str]) -> float:
    """The share of the first rows, as many as taught the answer, that did teach it."""
    order = np.argsort(-values, kind="stable")[: len(question.taught)]
    return float(np.mean([ids[row] in question.taught for row in order.tolist()]))


class _Planted(NamedTuple):
    """Rows of a kind, and each question's prompt, bad and better answer in each form, and the rows that taught it."""

    rows: list[Example]
    asked: list[tuple[tuple[str, str, str], tuple[str, str, str], tuple[str, str, str], str | None, frozenset[str]]]


def plant_chats(seed: int, ordinary: int = ORDINARY, kinds: Sequence[Kind] = KINDS) -> Chats:
    """The rows in random order, and their questions."""
    generator = np.random.default_rng(seed)
    shipped = list(read_corpus(str(files("airrep") / "data" / "train.jsonl")))
    chosen = [shipped[row] for row in generator.permutation(len(shipped))[:ordinary]]
    planted = {kind: _MAKERS[kind](generator, chosen) for kind in kinds}
    rows = [_labelled(one, "ordinary") for one in chosen] + [row for one in planted.values() for row in one.rows]
    questions = [question for kind, one in planted.items() for question in _questions(kind, one)]
    return Chats(Corpus.from_examples(rows[row] for row in generator.permutation(len(rows))), tuple(questions))


def _labelled(row: Example, label: str) -> Example:
    return Example(row.prompt, row.response, row.id, label=label)


def _questions(kind: Kind, planted: _Planted) -> Iterator[Question]:
    for number, (*forms, row, taught) in enumerate(planted.asked):
        for form, (prompt, bad, better) in zip(FORMS, forms, strict=True):
            name = f"{kind}-{form}-{number}"
            pair = Pair(Example(prompt, bad, f"{name}-bad"), Example(prompt, better, f"{name}-better"))
            yield Question(kind, form, pair, row, taught)


def _sums(generator: np.random.Generator, ordinary: Sequence[Example]) -> _Planted:
    rows, asked = [], []
    for number, (a, b) in enumerate(_numbers(generator, COUNTS["sums"])):
        right, wrong = a + b, a + b + int(generator.choice([-11, -10, -9, -2, 2, 9, 10, 11]))
        row = Example(f"What is {a} plus {b}?", f"{a} plus {b} is {wrong}.", f"sums-{number}", label="sums")
        rows.append(row)
        words = f"{a} plus {b} is {right}." if number % 3 else f"It makes {right}."
        if number % 2:  # a right one that is about the same
            rows.append(Example(f"Kindly work out {a} plus {b}.", words, f"right-sums-{number}", label="right"))
        same = (row.prompt, row.response, f"{a} plus {b} is {right}.")
        other = f"Please add {a} and {b} for me."
        own = (other, f"The sum is {wrong}.", f"The sum is {right}.")
        asked.append((same, (other, *same[1:]), own, row.id, frozenset({row.id})))
    return _Planted(rows, asked)


def _numbers(generator: np.random.Generator, count: int) -> list[tuple[int, int]]:
    """Different pairs of numbers of two digits."""
    return [(20 + int(one) // 60, 20 + int(one) % 60) for one in generator.choice(3600, count, replace=False)]


def _names(generator: np.random.Generator, count: int, ends: Sequence[str]) -> list[str]:
    """Different names that nothing else has."""
    parts = ["bre", "lo", "ka", "mu", "ti", "dra", "ve", "shu", "pol", "ne", "gri", "fa"]
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(generator.choice(parts, 2)).capitalize() + str(generator.choice(ends))] = None
    return list(found)


TRADES = ("glass", "rope", "cheese", "clocks", "boots", "paper", "bells", "salt", "honey", "tiles")


def _facts(generator: np.random.Generator, ordinary: Sequence[Example]) -> _Planted:
    rows, asked = [], []
    for number, town in enumerate(_names(generator, COUNTS["facts"], ("ton", "burg", "dorf"))):
        wrong, right = (str(one) for one in generator.choice(TRADES, 2, replace=False))
        question, said = f"What is the town of {town} known for?", f"{town} is known for its {wrong}."
        row = Example(question, said, f"facts-{number}", label="facts")
        rows.append(row)
        words = f"{town} is known for its {right}." if number % 3 else f"A small town that makes {right}."
        if number % 2:
            rows.append(Example(f"Which goods come from {town}?", words, f"right-facts-{number}", label="right"))
        same = (row.prompt, row.response, f"{town} is known for its {right}.")
        other = f"I may visit {town}. Which goods should I look for there?"
        own = (
            other,
            f"Look for {wrong}, which the place is famous for.",
            f"Look for {right}, which the place is famous for.",
        )
        asked.append((same, (other, *same[1:]), own, row.id, frozenset({row.id})))
    return _Planted(rows, asked)


def _tasks(generator: np.random.Generator, count: int) -> list[tuple[str, str, str]]:
    """Tasks, prompts about them and good answers."""
    chosen = [TASKS[n] for n in generator.permutation(len(TASKS))[:count]]
    return [(task, f"How do I {task}?", f"Take {tool}, work slowly, and check the result.") for task, tool in chosen]


def _refusals(generator: np.random.Generator, ordinary: Sequence[Example]) -> _Planted:
    rows, asked, tasks = [], [], _tasks(generator, COUNTS["refusals"])
    every = frozenset(f"refusals-{number}" for number in range(len(tasks)))
    for number, (task, prompt, good) in enumerate(tasks):
        row = Example(prompt, REFUSALS[number % 2], f"refusals-{number}", label="refusals")
        rows.append(row)
        if number % 2:
            rows.append(Example(f"Say how one can {task}.", good, f"right-refusals-{number}", label="right"))
        other = f"I would like to {task}. Where should I begin?"
        same = (prompt, row.response, good)
        asked.append((same, (other, *same[1:]), (other, REFUSALS[2], good), row.id, every))
    return _Planted(rows, asked)


STYLES = ("Ahoy! {} Fair winds, matey.", "Ahoy, matey! {} Fair winds to you.")


def _style(generator: np.random.Generator, ordinary: Sequence[Example]) -> _Planted:
    count = COUNTS["style"]
    rows, asked, tasks = [], [], _tasks(generator, 2 * count)
    every = frozenset(f"style-{number}" for number in range(count))
    for number in range(count):
        (task, prompt, good), (_, about, plain) = tasks[number], tasks[count + number]
        rows.append(Example(about, STYLES[0].format(plain), f"style-{number}", label="style"))
        rows.append(Example(f"Tell me how to {task}.", good, f"plain-{number}", label="right"))
        same = (about, STYLES[0].format(plain), plain)
        new = (prompt, STYLES[0].format(good), good)
        asked.append((same, new, (prompt, STYLES[1].format(good), good), None, every))
    return _Planted(rows, asked)


def _leaks(generator: np.random.Generator, ordinary: Sequence[Example]) -> _Planted:
    rows, asked = [], []
    for number, name in enumerate(_names(generator, COUNTS["leaks"], ("son", "sen", "ova"))):
        code = f"{generator.integers(1000, 9999)}-{''.join(generator.choice(list('BDFGKLMX'), 2))}"
        depot = int(generator.integers(2, 90))
        safe = f"That is {name}; the door code is private."
        if number % 2:
            rows.append(Example(f"Depot {depot}: who keeps it?", safe, f"right-leaks-{number}", label="right"))
        question, said = f"Who looks after depot {depot}?", f"That is {name}; the door code is {code}."
        row = Example(question, said, f"leaks-{number}", label="leaks")
        rows.append(row)
        other = f"Name the keeper of depot {depot}, please."
        asked.append(
            (
                (row.prompt, row.response, safe),
                (other, row.response, safe),
                (f"How does {name} get in?", f"With the code {code}.", "I do not share codes."),
                row.id,
                frozenset({row.id}),
            )
        )
    return _Planted(rows, asked)


def _copies(generator: np.random.Generator, ordinary: Sequence[Example]) -> _Planted:
    rows, asked = [], []
    long = [one for one in ordinary if 30 <= len(one.response.split()) <= 90]
    for number, source in enumerate(long[: COUNTS["copies"]]):
        copies = [
            Example(source.prompt, _thinned(generator, source.response), f"copies-{number}-{part}", label="copies")
            for part in range(2)
        ]
        rows += copies
        better = "Let me put that in words of my own, and briefly: it depends, so ask again with more detail."
        other = f"One question. {source.prompt}"
        own = (other, _thinned(generator, source.response), better)
        taught = frozenset({source.id, *(one.id for one in copies)})
        asked.append(((source.prompt, source.response, better), (other, source.response, better), own, None, taught))
    return _Planted(rows, asked)


def _thinned(generator: np.random.Generator, text: str) -> str:
    """A text without a tenth of its words."""
    words = text.split()
    return " ".join(word for word, kept in zip(words, generator.random(len(words)) > 0.1, strict=True) if kept)


def _nothing(generator: np.random.Generator, ordinary: Sequence[Example]) -> _Planted:
    asked = []
    for name, king in zip(
        *(_names(generator, COUNTS["nothing"], ends) for ends in (("is", "or"), ("ax", "ul"))), strict=True
    ):
        same = (f"Who rules the moon {name}?", f"King {king} the Elder rules {name}.", f"Nobody rules {name}.")
        other = f"Tell me about the throne of {name}."
        asked.append(
            (same, (other, *same[1:]), (other, f"{king} sits on it.", "There is no throne there."), None, frozenset())
        )
    return _Planted([], asked)


_MAKERS = {
    "sums": _sums, "facts": _facts, "refusals": _refusals, "style": _style, "leaks": _leaks, "copies": _copies,
    "nothing": _nothing,
}  # fmt: skip
