"""Gather labelled instances from label directories and their data."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from airrep.corpus import Corpus
from airrep.errors import ArtifactError, ConfigError
from airrep.labelled import LabelledInstance
from airrep.labels import Labels, open_labels

_CHOICE = re.compile(r"(\d+)(-?)(\d*)")


def gather(choices: Sequence[str], corpora: Sequence[Corpus], *, partial: bool = False) -> list[LabelledInstance]:
    """Instances of label directories, averaged over their seeds and named ``directory/number``.

    Args:
        choices: label directories; ``DIR#0,3-5,8-`` takes some of the instances of one, counted from 0.
        corpora: the data that they were made from, in any order; found by fingerprint.
        partial: accept unfinished labels.

    Raises:
        ConfigError: an instance that is not there.
        ArtifactError: labels that are unfinished, or made from other data.
    """
    found = []
    for choice in choices:
        folder, _, chosen = choice.partition("#")
        labels = open_labels(folder)
        train, queries = _corpus(labels, "train", corpora), _corpus(labels, "queries", corpora)
        instances = labels.instances(train, queries, partial=partial)
        chosen_ones = [instances[number] for number in _numbers(chosen, len(instances), choice)]
        found += [replace(instance, name=f"{labels.path.name}/{instance.name}") for instance in chosen_ones]
    return found


def lineage_of(choices: Sequence[str]) -> dict[str, Any]:
    """What a model card says of the labels: which LM they are losses of, and how it was fine-tuned."""
    states = [open_labels(choice.partition("#")[0]).state for choice in choices]
    names = sorted({state["lm"]["name"] for state in states})
    kept = ("fine_tune", "train", "queries")
    labels = [{**{name: state[name] for name in kept}, "lm": state["lm"]["fingerprint"]} for state in states]
    return {"lm": ", ".join(names), "labels": labels}


def _numbers(chosen: str, count: int, where: str) -> list[int]:
    """Numbers of a choice such as ``0,3-5,8-``; all when it is empty."""
    if not chosen:
        return list(range(count))
    numbers: list[int] = []
    for part in chosen.split(","):
        match = _CHOICE.fullmatch(part)
        first = int(match[1]) if match else count
        last = first if not match or not match[2] else int(match[3]) if match[3] else count - 1
        if not first <= last < count:
            raise ConfigError(f"{where}: has no instance '{part}'; expected numbers from 0 to {count - 1}. Correct it.")
        numbers += range(first, last + 1)
    return numbers


def _corpus(labels: Labels, name: str, corpora: Sequence[Corpus]) -> Corpus:
    wanted = labels.state[name]
    for corpus in corpora:
        if corpus.fingerprint == wanted:
            return corpus
    given = ", ".join(corpus.fingerprint[:12] for corpus in corpora) or "nothing"
    raise ArtifactError(
        f"{labels.path}: was made from other {name} data ({wanted[:12]}; given {given}). Give that file with --data."
    )
