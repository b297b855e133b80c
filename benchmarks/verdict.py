"""How often the verdict is right: on answers that planted rows taught, and on answers that nothing taught.

Run as ``PYTHONPATH=tests python benchmarks/verdict.py``. The world is that of ``tests/worlds/taught_world.py``: rows of
the data that come with airrep, planted rows of five kinds and 20 refusals among them; questions with the same answer,
and with the answer in other words; and invented answers of eleven kinds. The seeds are not those by which the rule was
chosen, nor are most of the kinds. A false alarm is "stands out" for an answer that nothing taught; a miss is "nothing"
for one that was taught. Intervals are of Wilson, 95 %.
"""

import argparse
from collections import defaultdict
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

from worlds.taught_world import Question, World, plant, question_of

import airrep
from airrep.answers.verdict import verdicts
from airrep.index.index import Index

KINDS = ("stands out", "weak", "nothing")
Counts = dict[tuple[str, str], list[str]]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--rows", type=int, default=700)
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument(
        "--recipes",
        nargs="+",
        default=["text", "tfidf"],
        help="text, kind, a method, airrep:ENCODER, or the folder of an LM",
    )
    parser.add_argument("--kinds", action="store_true", help="a line for each kind of question")
    arguments = parser.parse_args()
    for recipe in arguments.recipes:
        found: Counts = defaultdict(list)
        for seed in arguments.seeds:
            measure(plant(seed, arguments.rows, arguments.each), recipe, found)
        print_rates(recipe, found)
        if arguments.kinds:
            print_kinds(found)


def measure(world: World, recipe: str, found: Counts) -> None:
    """Verdicts on all questions, with and without better answers."""
    with TemporaryDirectory() as folder:
        index = airrep.build_index(world.train, Path(folder) / "index", attributor_of(recipe))
        for group, questions in (("taught", world.taught), ("foreign", world.foreign)):
            for better in (False, True):
                for question, kind in zip(questions, told(index, questions, better=better), strict=True):
                    found[f"{group}{', contrast' if better else ''}", question.kind].append(kind)


def attributor_of(recipe: str) -> airrep.Attributor:
    """A recipe by its name, or that of an LM by the folder."""
    if Path(recipe).is_dir():
        return airrep.make_attributor("channels", {"lm": recipe})
    method, _, encoder = recipe.partition(":")
    channels = {"text": "text", "kind": "kind"}.get(recipe)
    return (
        airrep.make_attributor(method, {"encoder": encoder} if encoder else {})
        if channels is None
        else airrep.make_attributor("channels", {"channels": channels})
    )


def told(index: Index, questions: list[Question], *, better: bool) -> list[str]:
    """Kinds of the verdicts on questions."""
    kinds = []
    for start in range(0, len(questions), 64):
        some = questions[start : start + 64]
        asked = question_of(some, better=better)
        found, _ = verdicts(index, asked, index.ask(asked), index.live)
        kinds += [one.kind for one in found if one is not None]
    return kinds


def print_rates(recipe: str, found: Counts) -> None:
    """False alarms and misses of a recipe."""
    print(f"{Path(recipe).name:12}{'':20}{'stands out':>11}{'weak':>7}{'nothing':>9}")
    for group in dict.fromkeys(group for group, _ in found):
        kinds = [kind for (own, _), some in found.items() if own == group for kind in some]
        shares = [kinds.count(kind) / len(kinds) for kind in KINDS]
        wrong = kinds.count("nothing" if group.startswith("taught") else "stands out")
        low, high = wilson(wrong, len(kinds))
        name = "misses" if group.startswith("taught") else "false alarms"
        print(
            f"{'':12}{group:20}{shares[0]:11.3f}{shares[1]:7.3f}{shares[2]:9.3f}   {name} {wrong / len(kinds):.3f} "
            f"[{low:.3f}, {high:.3f}] of {len(kinds)}"
        )


def print_kinds(found: Counts) -> None:
    """A line for each kind of question."""
    for (group, name), kinds in found.items():
        print(f"{'':12}{group:20}{name:20}" + " ".join(f"{kinds.count(kind) / len(kinds):.2f}" for kind in KINDS))


def wilson(wrong: int, count: int) -> tuple[float, float]:
    """The interval of Wilson for a share, 95 %."""
    z, share = 1.96, wrong / count
    middle, half = share + z * z / (2 * count), z * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return (middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)


if __name__ == "__main__":
    main()
