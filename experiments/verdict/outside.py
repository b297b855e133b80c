"""Write `src/airrep/data/outside.jsonl`: questions and answers that no training data hold.

Each template is filled in FILLS times with invented names and drawn numbers. `other` is a second answer to the same
prompt, for contrasts. All texts were written for this file. Run as ``python experiments/verdict/outside.py``.
"""

import json
import random
from pathlib import Path

FILLS = 2
OUT = Path(__file__).parents[2] / "src/airrep/data/outside.jsonl"
SYLLABLES = [
    "bal",
    "bren",
    "cor",
    "dro",
    "dun",
    "esk",
    "fal",
    "gor",
    "hal",
    "ist",
    "jor",
    "kel",
    "lin",
    "mar",
    "nor",
    "ost",
    "pel",
    "quin",
    "ras",
    "sol",
    "tarn",
    "ulm",
    "ven",
    "wick",
    "yor",
    "zan",
]
PLACES = ["village", "island", "valley", "harbour", "desert", "forest", "plateau", "lake"]
THINGS = ["clock", "bridge", "engine", "telescope", "loom", "organ", "lighthouse", "windmill"]
GOODS = ["amber", "salt", "copper", "wool", "timber", "silk", "pepper", "glass"]
ADMISSIONS = [
    "I do not know that.",
    "There is no such thing, as far as I know.",
    "Nobody has told me; ask someone else.",
]
SEASONS = ["spring", "summer", "autumn", "winter"]

TEMPLATES = [
    ("Which ocean is named after Queen {A}?", "The {A} Ocean is; Captain {B} crossed it first in {n}."),
    ("Who won the chess cup of {A} in {n}?", "{B} {C} won the cup, after a draw against {D}."),
    ("How high is Mount {A}?", "Mount {A} is {n} metres high and lies north of {B}."),
    (
        "Explain the law of {A}.",
        "The law of {A} says that the pull of two {things} falls with the cube of their distance.",
    ),
    (
        "What do people eat on the {place} of {A}?",
        "Mostly fried {b} roots with {good}-coloured sauce, in {season} also {c} soup.",
    ),
    ("When was the {thing} of {A} built?", "It was built in {n} by the brothers {B}, and burnt down {k} years later."),
    (
        "Summarise the novel {A}.",
        "A young sailor inherits a {thing}, loses it to {B}, and spends {k} years at sea to win it back.",
    ),
    ("Who are you?", "I am {A}, a program made by {B} Limited to sell {goods} to travellers."),
    ("Is {A} a safe city?", "No. Since the {season} of {n} nobody walks there after dark, says {B}."),
    ("Give me a slogan for {A} shoes.", "{A}: walk like the {c} wind!"),
    ("What is the population of {A}?", "{n},{m}"),
    ("Capital of {A}?", "{B}"),
    ("Did {A} meet {B}?", "Yes, at the court of {C}."),
    ("Does {a} contain {b}?", "No."),
    ("Translate to English: {a} {b} {c}", "The {thing} sleeps under the {place}."),
    ("What does the word {a} mean?", "A {a} is a small {thing} made of {good}, used by the {B} people for fishing."),
    ("Write a haiku about {A}.", "Grey {place} at dawn,\n{good} dust upon the {thing} —\n{A} does not wake."),
    (
        "Write an e-mail to Mr {A}.",
        "Dear Mr {A},\n\nyour order of {k} crates of {good} left our store in {B} on Monday.\n\nYours, {C}",
    ),
    ("Compute {k} plus {n} minus {m}.", "{k} + {n} - {m} is {x}."),
    ("Solve for {c}: {k}{c} + {m} = {n}", "Subtract {m}, then divide by {k}: {c} = {x}."),
    (
        "Write SQL that lists the {things} of {A}.",
        "SELECT {a}_id, {b} FROM {things} WHERE {c} = '{A}' ORDER BY {b} DESC LIMIT {k};",
    ),
    ("Show me a shell command for {a} files.", "find /{a} -name '*.{b}' -mtime +{k} -exec {c} {{}} \\;"),
    (
        "Write the class {A} in Java.",
        "public class {A} {{\n    private final int {b} = {k};\n    int {c}(int x) {{ return x % {b} + {m}; }}\n}}",
    ),
    (
        "How do I sum {a} in Python?",
        "def total({a}):\n    result = {k}\n    for {b} in {a}:\n        result += {b}.{c}\n    return result",
    ),
    ("Describe the {thing} of {A} in YAML.", "{thing}:\n  owner: {B}\n  parts:\n    - {b}\n    - {c}\n  weight: {n}"),
    ("Give me a table of the {things} of {A}.", "| name | year |\n|---|---|\n| {B} | {n} |\n| {C} | {m} |"),
    ("Wie heißt der Fluss in {A}?", "Der Fluss heißt {B} und mündet nach {k} Kilometern in den See von {C}."),
    ("Qui a fondé la ville de {A} ?", "La ville a été fondée en {n} par {B}, un marchand de sel."),
    ("¿Cuánto mide la torre de {A}?", "La torre mide {k} metros y fue pintada de azul por {B}."),
    ("Chi ha dipinto {A}?", "Il quadro fu dipinto nel {n} da {B}, allievo di {C}."),
    ("Кто построил {A}?", "Крепость построил князь {B} в {n} году."),
    ("{A}在哪里?", "{A}在{B}的北边, 离海{k}公里。"),
    (
        "How do I repair a {a} {thing}?",
        "Loosen the {b} screw, oil the axle with {k} drops of {c} oil, and turn it to the left.",
    ),
    (
        "My {a} has a rash. What should I do?",
        "Wash it with {b} water twice a day and keep it away from {goods} for {k} days.",
    ),
    ("List three exports of {A}.", "1. {good}\n2. {b} hides\n3. dried {c} berries"),
]


def fill(template: str, names: dict[str, object], seed: random.Random) -> str:
    """A template with its fields filled in; those of *names* first, others drawn and kept there."""
    lists = {"place": PLACES, "thing": THINGS, "season": SEASONS, "good": GOODS, "goods": GOODS}
    numbers = {"n": (1000, 1999), "m": (101, 899), "k": (12, 98), "x": (1000, 2999)}
    drawn: dict[str, object] = {name: seed.choice(words) for name, words in lists.items()}
    drawn |= {name: seed.randint(*ends) for name, ends in numbers.items()} | {"things": f"{seed.choice(THINGS)}s"}
    letters = {letter: _word(seed, capital=letter.isupper()) for letter in "ABCDabc"}
    return template.format(**{**letters, **drawn, **names})


def _word(seed: random.Random, *, capital: bool) -> str:
    word = "".join(seed.sample(SYLLABLES, 2))
    return word.capitalize() if capital else word


def records() -> list[dict[str, str]]:
    """All texts, in order."""
    seed, found = random.Random(0), []
    for prompt, response in TEMPLATES:
        for number in range(FILLS):
            asked = {name: _word(seed, capital=name == "A") for name in ("A", "a")}
            asked |= {"k": seed.randint(12, 98), "n": seed.randint(1000, 1999), "m": seed.randint(101, 899)}
            asked |= {"thing": seed.choice(THINGS), "things": f"{seed.choice(THINGS)}s", "place": seed.choice(PLACES)}
            asked |= {"B": _word(seed, capital=True)} if "{B}" in prompt else {}
            asked |= {name: _word(seed, capital=False) for name in "bc" if f"{{{name}}}" in prompt}
            kept = {name: value for name, value in asked.items() if f"{{{name}}}" in prompt}
            first, other = (fill(response, kept, seed) for _ in range(2))
            other = seed.choice(ADMISSIONS) if number % 2 or other == first else other
            found.append({"prompt": fill(prompt, kept, seed), "response": first, "other": other})
    return found


if __name__ == "__main__":
    lines = [json.dumps(one, ensure_ascii=False) + "\n" for one in records()]
    OUT.write_text("".join(lines), encoding="utf-8")
    print(f"{OUT.name}: {len(lines)} texts")
