"""Gather labelled instances from label directories, data and airrep-test folders."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from airrep.corpus.corpus import Corpus, read_corpus
from airrep.errors import AirRepError, ArtifactError, ConfigError, DataError
from airrep.labels.instance import LabelledInstance
from airrep.labels.labels import Labels, open_labels
from airrep.labels.plan import KIND as PLAN
from airrep.runtime.artifacts.digests import file_digest
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.scoring.groups import Groups

TRAIN, TEST, LDS = "train.jsonl", "test.jsonl", "lds.jsonl"
"""Files of a folder in the ``airrep-test`` layout."""
ROWS, LOSSES = "train_subset", "test_loss"
"""Fields of each line of the last."""
MOST = float(np.finfo(np.float32).max)
_CHOICE = re.compile(r"(\d+)(-?)(\d*)")


def gather(
    choices: Sequence[str],
    corpora: Sequence[Corpus] = (),
    *,
    partial: bool = False,
    beside: Sequence[str] = (),
    read: Callable[[str], Corpus] = read_corpus,
) -> list[LabelledInstance]:
    """Gather the instances of label directories, averaged over their seeds and named ``directory/number``.

    Args:
        choices: label directories; ``DIR#0,3-5,8-`` takes some of the instances of one, counted from 0. Or folders in
            the ``airrep-test`` layout, which are one instance each and bring their data.
        corpora: the data that the labels were made from, in any order; found by fingerprint.
        partial: accept unfinished labels.
        beside: other choices of the same run; directories of one name among them are told apart by their parents'.
        read: reader of the data that folders bring.

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


def _open(folder: str | Path) -> Labels:
    try:
        return open_labels(folder)
    except ArtifactError as error:
        explain(Path(folder))  # raises a better error for a folder that is nearly in the other layout
        raise ArtifactError(f"{error} {_way_to_labels(Path(folder))}") from None


def _way_to_labels(folder: Path) -> str:
    """Command that makes labels, for a directory that holds none."""
    try:
        drawn = read_manifest(folder)["kind"] == PLAN
    except AirRepError:
        drawn = False
    if drawn:
        return f"These are subsets without losses; next: airrep label {folder} DATA --lm MODEL --out LABELS"
    return (
        "Labels come of `airrep sample DATA --out SUBSETS` and `airrep label`; `airrep judge INDEX --lm MODEL "
        "--queries QUERIES` makes them and judges by them."
    )


def _corpus(labels: Labels, name: str, corpora: Sequence[Corpus]) -> Corpus:
    wanted = labels.state[name]
    for corpus in corpora:
        if corpus.fingerprint == wanted:
            return corpus
    given = ", ".join(corpus.fingerprint[:12] for corpus in corpora) or "nothing"
    raise ArtifactError(
        f"{labels.path}: was made from other {name} data ({wanted[:12]}; given {given}). Give that file too."
    )


def label_lineage(
    choices: Sequence[str], held_out: Sequence[str] = (), test: Sequence[str] = (), *, mixed: bool = False
) -> dict[str, Any]:
    """Lineage of labels for a model card: which LM they are losses of, and how it was fine-tuned.

    Label directories are as of :func:`gather`: to learn from, to choose the best step by, to score once. *mixed*
    accepts losses of several LMs, or of one that was fine-tuned in several ways.
    """
    parts = {"labels": choices, "held_out_labels": held_out, "test_labels": test}
    opened = {name: [_LabelState.of(choice.partition("#")[0]) for choice in part] for name, part in parts.items()}
    if not mixed:
        _refuse_mixture([labels for part in opened.values() for labels in part])
    names = sorted({labels.state["lm"]["name"] for labels in opened["labels"]})
    lm = {"lm": ", ".join(names)} if names else {}
    return lm | {name: [_origin(labels) for labels in part] for name, part in opened.items()}


class _LabelState(NamedTuple):
    """The path of labels, and the recorded way in which they were made."""

    path: Path
    state: Mapping[str, Any]

    @classmethod
    def of(cls, folder: str) -> "_LabelState":
        path = Path(folder)
        return cls(path, published_state(path) if is_published(path) else _open(path).state)


def _origin(labels: _LabelState) -> dict[str, Any]:
    state = labels.state
    kept = {name: state[name] for name in ("fine_tune", "precision", "train", "queries")}
    return {**kept, "lm": state["lm"]["fingerprint"], "lm_name": state["lm"]["name"]}


def _refuse_mixture(labels: Sequence[_LabelState]) -> None:
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


def _comparable(labels: _LabelState) -> dict[str, Any]:
    """Properties that must be equal in labels that are learnt from and judged by."""
    state = labels.state
    tuning = {f"fine_tune.{name}": value for name, value in state["fine_tune"].items()}
    return {"LM": state["lm"]["fingerprint"][:12], "precision": state["precision"], **tuning}


def is_published(folder: Path) -> bool:
    """True if a folder is in the ``airrep-test`` layout; refuses a folder of several benchmarks, or a part of one."""
    if (folder / LDS).is_file():
        _check_files(folder)
        return True
    here = any((folder / name).is_file() for name in (TRAIN, TEST))
    inside = sorted(path.parent.name for path in folder.glob(f"*/{LDS}")) if folder.is_dir() else []
    if inside and not here:
        raise DataError(
            f"{folder}: holds several benchmarks ({', '.join(inside[:8])}); expected one folder with {LDS}. "
            f"Name one: {folder / inside[0]}."
        )
    return False


def explain(folder: Path) -> None:
    """Refuse a folder that is nearly in the ``airrep-test`` layout, and tell what it lacks."""
    packed = folder / f"{LDS}.gz"
    if packed.is_file():
        raise DataError(
            f"{folder}: has {packed.name} but no {LDS}; expected {LDS}, as no compressed file is read here. "
            f"Unpack it: gunzip -k {packed}."
        )
    if (folder / TRAIN).is_file() and (folder / TEST).is_file():
        raise DataError(
            f"{folder}: has {TRAIN} and {TEST} but no {LDS}; expected {LDS} with subsets and losses. Add that file."
        )


def _check_files(folder: Path) -> None:
    missing = next((name for name in (TRAIN, TEST) if not (folder / name).is_file()), None)
    if missing is not None:
        raise DataError(f"{folder}: has {LDS} but no {missing}; expected {TRAIN}, {TEST} and {LDS}. Add that file.")


def read_published(
    folder: str | Path, name: str | None = None, read: Callable[[str], Corpus] = read_corpus
) -> LabelledInstance:
    """Read a folder in the ``airrep-test`` layout as one instance, by the folder's name if no other is given.

    Raises:
        DataError: a file is missing, or a line cannot be used; the line is named.
    """
    path = Path(folder)
    _check_files(path)
    train, queries = (_read_all(path / file, read) for file in (TRAIN, TEST))
    subsets, losses = [], []
    for where, line in _lines(path / LDS):
        subsets.append(_rows(line, len(train), where))
        losses.append(_losses(line, len(queries), where))
    if len(subsets) < 2:
        raise DataError(f"{path / LDS}: has {len(subsets)} subsets; expected two or more, one a line. Add some.")
    groups = Groups.from_lists({str(number): rows for number, rows in enumerate(subsets)})
    matrix = np.ascontiguousarray(np.array(losses, np.float32).T)
    return LabelledInstance(name or path.resolve().name, train, queries, groups, matrix)


def published_state(folder: Path) -> dict[str, Any]:
    """State of such labels for model cards: which files; the LM is not known."""
    unknown = {"name": "unknown", "fingerprint": "unknown"}
    files = {"train": file_digest(folder / TRAIN), "queries": file_digest(folder / TEST)}
    return {"lm": unknown, "fine_tune": {}, "precision": "unknown", **files}


def _read_all(path: Path, read: Callable[[str], Corpus]) -> Corpus:
    """A corpus with every line of a file, as subsets and losses go by line."""
    corpus = read(str(path))
    if corpus.skipped.count:
        raise DataError(
            f"{path}: {corpus.skipped.count:,} records cannot be used, the first: {corpus.skipped.messages[0]}; "
            f"expected all, since {LDS} counts lines. Mend them."
        )
    return corpus


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line's place and object."""
    try:
        with path.open(encoding="utf-8") as stream:
            for number, text in enumerate(stream, start=1):
                if text.strip():
                    yield f"{path}:{number}", _parse(text, f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}; expected JSON lines in UTF-8. Check the file.") from error


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise DataError(f"{where}: is not JSON; expected an object on each line. Correct the line.") from error
    for key in (ROWS, LOSSES):
        if not isinstance(value, dict) or not isinstance(value.get(key), list):
            raise DataError(f"{where}: has no list '{key}'; expected {ROWS} and {LOSSES}. Correct the line.")
    return dict(value)


def _rows(line: dict[str, Any], count: int, where: str) -> list[int]:
    rows = line[ROWS]
    # By type, as a bool is an int and would count as row 0 or 1.
    odd = [row for row in rows if type(row) is not int or not 0 <= row < count]
    if odd:
        raise DataError(
            f"{where}: {ROWS} holds {_shown(odd[0])}; expected row numbers from 0 to {count - 1} of {TRAIN}. "
            "Correct the line."
        )
    if not rows or len(set(rows)) < len(rows):
        problem = "a row twice" if rows else "nothing"
        raise DataError(f"{where}: {ROWS} holds {problem}; expected different row numbers. Correct the line.")
    return list(rows)


def _losses(line: dict[str, Any], count: int, where: str) -> list[float]:
    losses = line[LOSSES]
    if len(losses) != count:
        raise DataError(
            f"{where}: {LOSSES} has {len(losses)} losses; expected {count}, one for each line of {TEST}. "
            "Correct the line."
        )
    # NaN is above nothing, so it is asked whether a loss is below the limit.
    odd = [loss for loss in losses if loss is not None and (type(loss) not in (int, float) or not abs(loss) <= MOST)]
    if odd:
        raise DataError(f"{where}: {LOSSES} holds {_shown(odd[0])}; expected numbers, or null. Correct the line.")
    return [math.nan if loss is None else loss for loss in losses]


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 40 else f"{text[:40]}…"
