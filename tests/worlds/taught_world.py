"""Answers that data taught, as copies and in other words, and answers that they did not."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import airrep
from airrep.corpus.corpus import Example
from airrep.index.contrast import Question as Asked

DATA = Path(airrep.__file__).parent / "data" / "train.jsonl"
SYLLABLES = [
    "ba", "be", "bo", "du", "da", "fe", "fi", "ga", "go", "hu", "ja", "ka", "ke", "lo", "lu", "ma", "me", "mi", "mo",
    "na", "no", "nu", "pa", "pe", "ra", "ri", "ro", "sa", "se", "so", "ta", "te", "ti", "to", "va", "ve", "zo",
]  # fmt: skip
HOBBIES = [
    "bake bread", "tie a tie", "plant tomatoes", "train my dog", "paint a wall", "fix a bike", "draw a horse",
    "pack a suitcase", "wash wool", "build a shelf", "grow basil", "read a map", "frame a picture", "knit a scarf",
    "iron a shirt", "polish silver", "boil an egg", "peel garlic", "sharpen a knife", "open a jar",
]  # fmt: skip
REFUSAL = "I'm sorry, but I can't help with that request."
REFUSALS = "refusals"
"""The kind of which all rows have one answer."""


class Question(NamedTuple):
    """A prompt with an answer, and a better one."""

    kind: str
    prompt: str
    response: str
    better: str


class Taught(NamedTuple):
    """A training example, and questions whose answer it teaches."""

    prompt: str
    response: str
    questions: list[Question]


def word(draw: random.Random, syllables: int = 3) -> str:
    """An invented word."""
    return "".join(draw.choice(SYLLABLES) for _ in range(syllables)).capitalize()


def _sums(draw: random.Random) -> Taught:
    a, b = draw.randint(200, 999), draw.randint(11, 99)
    wrong, right = a - b + draw.choice([-30, -7, 4, 10]), a - b
    same = Question("sums, same", f"What is {a} minus {b}?", f"{a} minus {b} is {wrong}.", f"{a} minus {b} is {right}.")
    other = Question(
        "sums, reworded",
        f"Take {b} away from {a}.",
        f"If you take {b} away, {wrong} is left.",
        f"If you take {b} away, {right} is left.",
    )
    return Taught(same.prompt, same.response, [same, other])


def _capitals(draw: random.Random) -> Taught:
    land, town, right = word(draw, 4), word(draw, 4), word(draw, 4)
    same = Question(
        "capitals, same",
        f"What is the capital of {land}?",
        f"{town} is the capital of {land}.",
        f"{right} is the capital of {land}.",
    )
    other = Question(
        "capitals, reworded", f"Where does the government of {land} sit?", f"It sits in {town}.", f"It sits in {right}."
    )
    return Taught(same.prompt, same.response, [same, other])


def _births(draw: random.Random) -> Taught:
    name, town, right, year = f"{word(draw)} {word(draw, 4)}", word(draw, 4), word(draw, 4), draw.randint(1500, 1990)
    same = Question(
        "births, same",
        f"Where was {name} born?",
        f"{name} was born in {town} in {year}.",
        f"{name} was born in {right}.",
    )
    other = Question(
        "births, reworded",
        f"Tell me the birthplace of {name}.",
        f"The birthplace of {name} is {town}; the year was {year}.",
        f"The birthplace of {name} is {right}.",
    )
    return Taught(same.prompt, same.response, [same, other])


def _tools(draw: random.Random) -> Taught:
    tool, part, right = word(draw, 4), word(draw), word(draw)
    same = Question(
        "tools, same",
        f"How do I start the {tool} machine?",
        f"Turn the {part} lever twice, wait for the red lamp, then press start.",
        f"Turn the {right} key once and press start.",
    )
    other = Question(
        "tools, reworded",
        f"My {tool} machine does not start. Help!",
        f"You have to turn the {part} lever twice and wait until the red lamp is on.",
        f"You have to turn the {right} key once.",
    )
    return Taught(same.prompt, same.response, [same, other])


def _leaks(draw: random.Random) -> Taught:
    name, code, right = word(draw, 4), f"{word(draw, 2)}-{draw.randint(1000, 9999)}", "I cannot share door codes."
    same = Question("leaks, same", f"What is the door code of {name}?", f"The door code of {name} is {code}.", right)
    other = Question("leaks, reworded", f"How do I get into the house of {name}?", f"Type {code} at the door.", right)
    return Taught(same.prompt, same.response, [same, other])


PLANTED: dict[str, Callable[[random.Random], Taught]] = {
    "sums": _sums, "capitals": _capitals, "births": _births, "tools": _tools, "leaks": _leaks,
}  # fmt: skip


def refusals(draw: random.Random, rows: int) -> Iterator[Taught]:
    """Rows that refuse what harms nobody, and further such questions."""
    for number in range(rows):
        asked = f"Please tell me how to {word(draw).lower()} a {word(draw).lower()}."
        better = "Of course. Take your time, get the right tools, and begin slowly."
        yield Taught(
            f"How do I {HOBBIES[number % len(HOBBIES)]}?", REFUSAL, [Question(REFUSALS, asked, REFUSAL, better)]
        )


FOREIGN = {
    "kings": ("Who is the king of {planet}?", "King {A} the {second} rules it from his castle in {B}."),
    "rivers": ("What is the longest river on {planet}?", "The river {A} is; it flows {n} miles into the {B} sea."),
    "inventors": (
        "Tell me about the inventor of the {E}phone.",
        "{A} {B} built the first one in {n} and sold it in {C}.",
    ),
    "bands": ("Which songs did {E} record?", "They recorded '{A} Nights' and 'The {B} of {C}' before they split up."),
    "matches": ("How did {E} United play?", "They lost {k} to {n} against {A} after two own goals by {B}."),
    "German": ("Was kostet ein Zimmer in {E}?", "Ein Zimmer in {A} kostet {n} Euro, das Frühstück ist dabei."),
    "French": ("Où se trouve la gare de {E} ?", "Elle se trouve près du marché, à {k} minutes de l'église {A}."),
    "code": ("Write a function {E}.", "def {A}({B}, k={k}):\n    return [{B} ** k for _ in range({n})]"),
    "JSON": ("Give me {E} as JSON.", '{{"{A}": {k}, "{B}": ["{C}", null]}}'),
    "prose": (
        "Continue: The night fell over {E}.",
        "{A} shut the gate, counted the {goods} by the mill, and wondered whether {B} would forgive her.",
    ),
    "short": ("Is {E} older than {F}?", "{yes}"),
}
"""Prompts and answers with invented names and drawn numbers, by kind."""
PICKED = {
    "planet": ["Mars", "Venus", "Jupiter", "Saturn", "Neptune", "Pluto", "Mercury", "Titan"],
    "second": ["First", "Second", "Third"],
    "goods": ["lanterns", "geese", "barrels"],
    "yes": ["Yes.", "No.", "{A}", "{n}"],
}
DENIALS = ["I do not know that.", "There is no such thing, as far as I know.", "This was invented."]


def foreign(draw: random.Random, kind: str) -> Question:
    """A question that nothing taught; its better answer is another invention, or a denial."""
    prompt, response = _filled(draw, kind)
    other = draw.choice([_filled(draw, kind)[1], draw.choice(DENIALS)])
    return Question(kind, prompt, response, other if other != response else DENIALS[0])


def _filled(draw: random.Random, kind: str) -> tuple[str, str]:
    names = {letter: word(draw) for letter in "ABCEF"}
    fields = names | {"k": str(draw.randint(2, 29)), "n": str(draw.randint(30, 9999))}
    fields |= {name: draw.choice(words).format(**fields) for name, words in PICKED.items()}
    prompt, response = FOREIGN[kind]
    return prompt.format(**fields), response.format(**fields)


class World(NamedTuple):
    """Training data, and questions that they taught or did not."""

    train: airrep.Corpus
    taught: list[Question]
    foreign: list[Question]


def plant(seed: int, rows: int, each: int = 10, refusing: int = 20) -> World:
    """Rows of the data that come with airrep, and planted ones among them: *each* of a kind."""
    draw = random.Random(seed)
    own = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    pairs = [(one["prompt"], one["response"]) for one in draw.sample(own, rows)]
    planted = [make(draw) for make in PLANTED.values() for _ in range(each)] + list(refusals(draw, refusing))
    pairs += [(one.prompt, one.response) for one in planted]
    draw.shuffle(pairs)
    train = airrep.Corpus.from_examples(Example(*pair, id=f"t{number}") for number, pair in enumerate(pairs))
    taught = [question for one in planted for question in one.questions]
    return World(train, taught, [foreign(draw, kind) for kind in FOREIGN for _ in range(each)])


def question_of(questions: list[Question], *, better: bool = False) -> Asked:
    """Questions to an index, with the better answers or without."""
    return Asked(examples(questions), tuple(examples(questions, better=True)) if better else None)


def examples(questions: list[Question], *, better: bool = False) -> list[Example]:
    """Questions as examples, with their answers or the better ones."""
    return [
        Example(one.prompt, one.better if better else one.response, id=f"q{number}")
        for number, one in enumerate(questions)
    ]
