"""Gather labelled instances from label directories, data and airrep-test folders."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from airrep.corpus.corpus import Corpus, read_corpus
from airrep.errors import AirRepError, ArtifactError, ConfigError, DataError, many
from airrep.labels.labels import LabelledInstance, Labels, shown_json
from airrep.labels.plan import KIND as PLAN
from airrep.runtime.artifacts import REQUEST, file_digest, read_manifest
from airrep.scoring.groups import Groups

TRAIN, TEST, LDS = "train.jsonl", "test.jsonl", "lds.jsonl"
"""Files of a folder in the ``airrep-test`` layout."""
ROWS, LOSSES = "train_subset", "test_loss"
"""Fields of each line of ``lds.jsonl``."""
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
        choices: label directories, or folders in the ``airrep-test`` layout, which are one instance each and hold its
            data. ``DIR#0,3-5,8-`` takes only these instances of a directory, counted from 0.
        corpora: the data that the labels were made from, in any order; found by fingerprint.
        partial: accept unfinished labels.
        beside: other choices of the same run; directories with equal names are told apart by their parents' names.
        read: reader of the data in ``airrep-test`` folders.

    Raises:
        ConfigError: an instance does not exist.
        ArtifactError: labels are unfinished, or were made from other data.
        DataError: a file of an ``airrep-test`` folder is missing or cannot be used.
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
        labels = _open(Path(folder))
        train, queries = labels.corpus_of("train", corpora), labels.corpus_of("queries", corpora)
        instances = labels.instances(train, queries, partial=partial)
        chosen_ones = [instances[number] for number in _numbers(chosen, len(instances), choice)]
        found += [replace(instance, name=f"{name}/{instance.name}") for instance in chosen_ones]
    return found


def _numbers(chosen: str, most: int, where: str) -> list[int]:
    """Return the numbers of a choice such as ``0,3-5,8-``; all numbers below *most* if it is empty."""
    numbers: list[int] = []
    for part in chosen.split(",") if chosen else ["0-"]:
        match = _CHOICE.fullmatch(part)
        first = int(match[1]) if match else most
        last = first if not match or not match[2] else int(match[3]) if match[3] else most - 1
        if not first <= last < most:
            raise ConfigError(
                f"{where}: there is no instance (train/query split) '{part}'. Give numbers from 0 to {most - 1}."
            )
        numbers += range(first, last + 1)
    return numbers


def _short_names(folders: Sequence[Path]) -> dict[Path, str]:
    """Name each path by its last part, preceded by as many parents as make the name unique."""
    found = {}
    for folder in folders:
        others = [other.parts for other in folders if other != folder]
        depth = next(d for d in count(1) if all(other[-d:] != folder.parts[-d:] for other in others))
        found[folder] = "/".join(folder.parts[-depth:])
    return found


def _open(folder: Path) -> Labels:
    """Open labels; if there are none, the error says which command makes them."""
    try:
        return Labels(folder)
    except ArtifactError as error:
        way = (
            "Make labels with `airrep sample DATA --out SUBSETS` and `airrep label`, or let `airrep prove INDEX "
            "QUERIES --lm MODEL --budget 30m` make labels and judge the index."
        )
        with suppress(AirRepError):
            if read_manifest(folder)["kind"] == PLAN:
                way = f"Subsets have no losses yet. Run: airrep label {folder} DATA --lm MODEL --out LABELS"
        raise ArtifactError(f"{error} {way}") from None


def label_lineage(
    choices: Sequence[str], held_out: Sequence[str] = (), test: Sequence[str] = (), *, mixed: bool = False
) -> dict[str, Any]:
    """Return the lineage of labels for a model card: which LM was fine-tuned, and how.

    Labels, given as for :func:`gather`, are *choices* to learn from, *held_out* to choose the best step by, and *test*
    to score once. *mixed* accepts losses of several LMs, or of one LM fine-tuned in several ways.
    """
    parts = {"labels": choices, "held_out_labels": held_out, "test_labels": test}
    opened = {name: [_state_of(Path(choice.partition("#")[0])) for choice in part] for name, part in parts.items()}
    if told := "" if mixed else mixture([*choices, *held_out, *test]):
        raise ArtifactError(f"{told}. Use labels of one LM with equal settings, or accept all labels: --set mixed=true")
    names = sorted({state["lm"]["name"] for _, state in opened["labels"]})
    lm = {"lm": ", ".join(names)} if names else {}
    return lm | {name: [_origin(state) for _, state in part] for name, part in opened.items()}


def _state_of(folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """Return the path of labels and the record of how they were made, unknown for an ``airrep-test`` folder."""
    if not is_published(folder):
        return folder, _open(folder).state
    files = {"train": file_digest(folder / TRAIN), "queries": file_digest(folder / TEST)}
    unknown = {"name": "unknown", "fingerprint": "unknown"}
    return folder, {"lm": unknown, "fine_tune": {}, "precision": "unknown", **files}


def _origin(state: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: state[name] for name in ("fine_tune", "precision", "train", "queries")}
    return {**kept, "lm": state["lm"]["fingerprint"], "lm_name": state["lm"]["name"]}


def mixture(choices: Sequence[str]) -> str:
    """Describe how labels with another LM, template or fine-tune differ from the first; return "" if all are alike."""
    kinds = []
    for path, state in (_state_of(Path(choice.partition("#")[0])) for choice in choices):
        lm, tuning = state["lm"], {f"fine_tune.{name}": value for name, value in state["fine_tune"].items()}
        own = {"LM": lm["name"], **{name: lm.get(name, "unknown") for name in ("template", "max_tokens")}}
        made = {"LM fingerprint": lm["fingerprint"][:12], "precision": state["precision"], **tuning}
        kinds.append((path, {**made, **own}))
    first, wanted = kinds[0]
    for path, found in kinds[1:]:
        differ = [name for name in wanted if found.get(name) != wanted[name]]
        if differ not in ([], ["LM"]):  # an LM that was moved has only another name
            told = [name for name in differ if differ[0] == "LM fingerprint" and name in own] or differ[:1]
            one, other = (", ".join(f"{name} {kind.get(name)}" for name in told) for kind in (found, wanted))
            return f"{path}: has labels (measured losses) made with {one}, but {first} was made with {other}"
    return ""


def is_published(folder: Path) -> bool:
    """True if a folder is in the ``airrep-test`` layout (DataError: it lacks a file, or holds such folders)."""
    there = [name for name in (TRAIN, TEST, LDS) if (folder / name).is_file()]
    if len(there) == 3:
        return True
    if LDS in there or (len(there) == 2 and not (folder / REQUEST).is_file()):
        missing = next(name for name in (TRAIN, TEST, LDS) if name not in there)
        raise DataError(f"{folder}: has {' and '.join(there)} but no {missing}. Add the uncompressed file {missing}.")
    inside = sorted(path.parent.name for path in folder.glob(f"*/{LDS}")) if folder.is_dir() else []
    if inside and not there:
        raise DataError(
            f"{folder}: holds several benchmarks ({', '.join(inside[:8])}). Give the folder of one benchmark, such as "
            f"{folder / inside[0]}."
        )
    return False


def read_published(
    folder: Path, name: str | None = None, read: Callable[[str], Corpus] = read_corpus
) -> LabelledInstance:
    """Read an ``airrep-test`` folder as one instance, named after the folder by default (DataError: names the line)."""
    train, queries = (_read_all(folder / file, read) for file in (TRAIN, TEST))
    subsets, losses = [], []
    for where, line in _lines(folder / LDS):
        subsets.append(_rows(line[ROWS], len(train), where))
        losses.append(_losses(line[LOSSES], len(queries), where))
    if len(subsets) < 2:
        raise DataError(f"{folder / LDS}: has {many(len(subsets), 'subset')}, one per line. At least two are needed.")
    groups = Groups.from_lists({str(number): rows for number, rows in enumerate(subsets)})
    matrix = np.ascontiguousarray(np.array(losses, np.float32).T)
    return LabelledInstance(name or folder.resolve().name, train, queries, groups, matrix)


def _read_all(path: Path, read: Callable[[str], Corpus]) -> Corpus:
    """Read a corpus with every line of a file, since subsets and losses refer to lines by number."""
    corpus = read(str(path))
    if corpus.skipped.count:
        raise DataError(
            f"{path}: {many(corpus.skipped.count, 'record')} cannot be used, but {LDS} refers to records by their "
            f"line. Correct these records. The first: {corpus.skipped.messages[0]}"
        )
    return corpus


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line's place and object, which has a list of rows and a list of losses."""
    try:
        with path.open(encoding="utf-8") as stream:
            texts = [(f"{path}:{number}", text) for number, text in enumerate(stream, start=1) if text.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}. The file must be JSON lines in UTF-8.") from error
    for where, text in texts:
        try:
            value = json.loads(text)
        except ValueError as error:
            raise DataError(f"{where}: is not valid JSON. Write a JSON object on each line.") from error
        for key in (ROWS, LOSSES):
            if not isinstance(value, dict) or not isinstance(value.get(key), list):
                raise DataError(f"{where}: has no list '{key}'. Each line needs the lists {ROWS} and {LOSSES}.")
        yield where, value


def _rows(rows: list[Any], most: int, where: str) -> list[int]:
    # Compare types, since isinstance takes a bool for an int.
    odd = [shown_json(row) for row in rows if type(row) is not int or not 0 <= row < most]
    if odd or not rows or len(set(rows)) < len(rows):
        problem = odd[0] if odd else "a row twice" if rows else "no rows"
        raise DataError(
            f"{where}: {ROWS} holds {problem}. Write row numbers of {TRAIN}, from 0 to {most - 1}, each at most once."
        )
    return rows


def _losses(losses: list[Any], queries: int, where: str) -> list[float]:
    # `not abs(loss) <= MOST` refuses NaN too, unlike `abs(loss) > MOST`.
    odd = [loss for loss in losses if loss is not None and (type(loss) not in (int, float) or not abs(loss) <= MOST)]
    if odd or len(losses) != queries:
        problem = f"holds {shown_json(odd[0])}" if odd else f"has {many(len(losses), 'loss', 'losses')}"
        raise DataError(
            f"{where}: {LOSSES} {problem}. Write {many(queries, 'loss', 'losses')}, one for each line of {TEST}: "
            "a number, or null."
        )
    return [math.nan if loss is None else loss for loss in losses]
