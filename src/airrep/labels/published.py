"""Read the folders of the published evaluation set airrep-test.

A folder holds one benchmark: ``train.jsonl`` and ``test.jsonl``, the train pool and the queries, and ``lds.jsonl``, one
line for each subset with ``train_subset``, row numbers in ``train.jsonl`` counted from 0, and ``test_loss``, one loss
for each line of ``test.jsonl``; ``null`` where one is missing. Other keys are not read.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from airrep.corpus.corpus import Corpus, read_corpus
from airrep.errors import DataError
from airrep.labels.instance import LabelledInstance
from airrep.runtime.artifacts import file_digest
from airrep.scoring.groups import Groups

TRAIN, TEST, LDS = "train.jsonl", "test.jsonl", "lds.jsonl"
ROWS, LOSSES = "train_subset", "test_loss"
MOST = float(np.finfo(np.float32).max)


def is_published(folder: Path) -> bool:
    """Whether a folder is laid out so; one with folders of benchmarks inside counts too, to be told which to name.

    Raises:
        DataError: it holds several benchmarks, or a part of one.
    """
    here = [name for name in (TRAIN, TEST, LDS) if (folder / name).is_file()]
    if LDS in here:
        _check_files(folder, here)
        return True
    inside = sorted(path.parent.name for path in folder.glob(f"*/{LDS}")) if folder.is_dir() else []
    if inside and not here:
        raise DataError(
            f"{folder}: holds several benchmarks ({', '.join(inside[:8])}); expected one folder with {LDS}. "
            f"Name one: {folder / inside[0]}."
        )
    return False


def explain(folder: Path) -> None:
    """Tell what a folder lacks that holds no labels, if it is laid out nearly so.

    Raises:
        DataError: it has the data but no losses, or compressed ones.
    """
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


def _check_files(folder: Path, here: Sequence[str]) -> None:
    missing = next((name for name in (TRAIN, TEST) if name not in here), None)
    if missing is not None:
        raise DataError(f"{folder}: has {LDS} but no {missing}; expected {TRAIN}, {TEST} and {LDS}. Add that file.")


def read_published(
    folder: str | Path, name: str | None = None, read: Callable[[str], Corpus] = read_corpus
) -> LabelledInstance:
    """Read one benchmark as one instance, which knows of no seeds.

    Args:
        folder: with the three files.
        name: of the instance; the folder's own if None.
        read: what reads the two data files.

    Raises:
        DataError: a file is missing, or a line cannot be used; the line is named.
    """
    path = Path(folder)
    _check_files(path, [file for file in (TRAIN, TEST, LDS) if (path / file).is_file()])
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
    """What model cards say of such labels: which files; the LM is not known."""
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
    """Where each line is, and its object."""
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
    odd = next((row for row in rows if type(row) is not int or not 0 <= row < count), None)
    if odd is not None:
        raise DataError(
            f"{where}: {ROWS} holds {_shown(odd)}; expected row numbers from 0 to {count - 1} of {TRAIN}. "
            "Correct the line."
        )
    if not rows or len(set(rows)) < len(rows):
        problem = "a row twice" if rows else "nothing"
        raise DataError(f"{where}: {ROWS} holds {problem}; expected different row numbers. Correct the line.")
    return list(rows)


def _losses(line: dict[str, Any], count: int, where: str) -> list[float]:
    losses = [math.nan if loss is None else loss for loss in line[LOSSES]]
    if len(losses) != count:
        raise DataError(
            f"{where}: {LOSSES} has {len(losses)} losses; expected {count}, one for each line of {TEST}. "
            "Correct the line."
        )
    odd = next((loss for loss in losses if type(loss) not in (int, float) or abs(loss) > MOST), None)
    if odd is not None:
        raise DataError(f"{where}: {LOSSES} holds {_shown(odd)}; expected numbers, or null. Correct the line.")
    return losses


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 40 else f"{text[:40]}…"
