"""Gather labelled instances from label directories and their data."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from airrep.corpus.corpus import Corpus, read_corpus
from airrep.errors import ArtifactError, ConfigError
from airrep.labels.instance import LabelledInstance
from airrep.labels.labels import Labels, open_labels
from airrep.labels.published import explain, is_published, published_state, read_published

_CHOICE = re.compile(r"(\d+)(-?)(\d*)")


def gather(
    choices: Sequence[str],
    corpora: Sequence[Corpus] = (),
    *,
    partial: bool = False,
    beside: Sequence[str] = (),
    read: Callable[[str], Corpus] = read_corpus,
) -> list[LabelledInstance]:
    """Instances of label directories, averaged over their seeds and named ``directory/number``.

    Args:
        choices: label directories; ``DIR#0,3-5,8-`` takes some of the instances of one, counted from 0. Or folders in
            the ``airrep-test`` layout (:mod:`airrep.labels.published`), which are one instance each and bring their
            data.
        corpora: the data that they were made from, in any order; found by fingerprint.
        partial: accept unfinished labels.
        beside: other choices of the same run; directories of one name among them are told apart by their parents'.
        read: what reads the data of folders that bring it.

    Raises:
        ConfigError: an instance that is not there.
        ArtifactError: labels that are unfinished, or made from other data.
        DataError: a folder in the ``airrep-test`` layout with a file that is missing or cannot be used.
    """
    found = []
    names = _short_names([Path(choice.partition("#")[0]).resolve() for choice in (*choices, *beside)])
    for choice in choices:
        folder, _, chosen = choice.partition("#")
        name = names[Path(folder).resolve()]
        if is_published(Path(folder)):
            _numbers(chosen, 1, choice)
            found.append(read_published(Path(folder), name, read))
            continue
        labels = _open(folder)
        train, queries = _corpus(labels, "train", corpora), _corpus(labels, "queries", corpora)
        instances = labels.instances(train, queries, partial=partial)
        chosen_ones = [instances[number] for number in _numbers(chosen, len(instances), choice)]
        found += [replace(instance, name=f"{name}/{instance.name}") for instance in chosen_ones]
    return found


def _open(folder: str | Path) -> Labels:
    try:
        return open_labels(folder)
    except ArtifactError:
        explain(Path(folder))
        raise


def _short_names(folders: Sequence[Path]) -> dict[Path, str]:
    """The last part of each path, with as many parents before it as tell it from the others."""

    def name(folder: Path, depth: int) -> str:
        return "/".join(folder.parts[-depth:])

    found = {}
    for folder in folders:
        others = [other for other in folders if other != folder]
        depth = 1
        while any(name(other, depth) == name(folder, depth) for other in others):
            depth += 1
        found[folder] = name(folder, depth)
    return found


def lineage_of(
    choices: Sequence[str], held_out: Sequence[str] = (), test: Sequence[str] = (), *, mixed: bool = False
) -> dict[str, Any]:
    """What a model card says of the labels: which LM they are losses of, and how it was fine-tuned.

    Args:
        choices: label directories that are learnt from, as for :func:`gather`.
        held_out: those that the best step is chosen by.
        test: those that are scored once.
        mixed: accept losses of several LMs, or of one that was fine-tuned in several ways.

    Raises:
        ArtifactError: they are mixed, and that was not asked for.
    """
    parts = {"labels": choices, "held_out_labels": held_out, "test_labels": test}
    opened = {name: [_Made.of(choice.partition("#")[0]) for choice in part] for name, part in parts.items()}
    if not mixed:
        _refuse_mixture([labels for part in opened.values() for labels in part])
    names = sorted({labels.state["lm"]["name"] for labels in opened["labels"]})
    lm = {"lm": ", ".join(names)} if names else {}
    return lm | {name: [_origin(labels) for labels in part] for name, part in opened.items()}


class _Made(NamedTuple):
    """Labels, and what is known of how they were made."""

    path: Path
    state: Mapping[str, Any]

    @classmethod
    def of(cls, folder: str) -> "_Made":
        path = Path(folder)
        return cls(path, published_state(path) if is_published(path) else _open(path).state)


def _origin(labels: _Made) -> dict[str, Any]:
    state = labels.state
    kept = {name: state[name] for name in ("fine_tune", "precision", "train", "queries")}
    return {**kept, "lm": state["lm"]["fingerprint"], "lm_name": state["lm"]["name"]}


def _refuse_mixture(labels: Sequence[_Made]) -> None:
    """Refuse labels of two LMs, or of one that was fine-tuned in two ways."""
    first, *others = labels
    wanted = _comparable(first)
    for other in others:
        found = _comparable(other)
        name = next((name for name in wanted if found.get(name) != wanted[name]), None)
        if name is not None:
            raise ArtifactError(
                f"{other.path}: was made with another {name} than {first.path} ({found.get(name)}; {wanted[name]}). "
                "Give labels of one kind, or pass --mixed to accept them all."
            )


def _comparable(labels: _Made) -> dict[str, Any]:
    """What must be equal in labels that are learnt from and judged by."""
    state = labels.state
    tuning = {f"fine_tune.{name}": value for name, value in state["fine_tune"].items()}
    return {"LM": state["lm"]["fingerprint"][:12], "precision": state["precision"], **tuning}


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
