"""Files for other trainers: subsets and queries, and the losses they write."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from airrep.corpus.corpus import Corpus
from airrep.errors import DataError
from airrep.labels.ledger import QueryLosses
from airrep.labels.plan import Place, SubsetPlan
from airrep.runtime.artifacts.digests import json_digest
from airrep.runtime.artifacts.manifests import seal
from airrep.runtime.stage import Stage
from airrep.shapes import Float32

KIND = "subset files"
LIST = "subsets.jsonl"
BEFORE = "before"
"""Stands for a subset's number where the model was not fine-tuned yet."""


def subset_name(place: Place) -> str:
    """Name of a subset in files of losses: instance and number, such as ``0-17``, or ``0-before``."""
    return f"{place.instance}-{BEFORE if place.subset is None else place.subset}"


def write_subset_files(
    plan: SubsetPlan, train: Corpus, queries: Corpus | None, out: str | Path, *, replace: bool = False
) -> Path:
    """Write each subset as a JSONL file, and the queries of each instance.

    ``subsets.jsonl`` lists them: the ``subset``'s name, the paths ``train`` and ``queries`` from its own folder,
    and the number of ``examples``. Files that are there already and hold the same are left as they are.

    Raises:
        DataError: other corpora than those of the plan.
        ArtifactError: something else is there, or it cannot be written.
    """
    plan.check_corpora(train, queries)
    asked = train if queries is None else queries
    request = {"plan": plan.fingerprint, "train": plan.train_fingerprint, "queries": plan.query_fingerprint}
    stage = Stage(out, KIND, "subsets written", request, replace)
    if stage.finished() is None:
        with stage.making() as folder:
            listed = list(_write(plan, train, asked, folder))
            (folder / LIST).write_text("".join(json.dumps(line) + "\n" for line in listed), "utf-8")
            counts = {"instances": len(plan), "subsets": len(listed), "plan": plan.fingerprint[:12]}
            seal(folder, KIND, {"request": request, "provenance": counts})
    return stage.path


def _write(plan: SubsetPlan, train: Corpus, queries: Corpus, folder: Path) -> Iterator[dict[str, Any]]:
    digits = len(str(plan.subset_count - 1))
    for i in range(len(plan)):
        (folder / str(i)).mkdir()
        asked = f"{i}/queries.jsonl"
        queries.take(plan.query_rows(i)).to_jsonl(folder / asked)
        for j in range(plan.subset_count):
            rows, name = plan.subset_rows(i, j), f"{i}/subset-{j:0{digits}}.jsonl"
            train.take(rows).to_jsonl(folder / name)
            yield {"subset": subset_name(Place(i, j, 0)), "train": name, "queries": asked, "examples": len(rows)}


MOST = 1e30
"""Largest absolute loss, far below float32's limit."""

_NUMPY = b"\x93NUMPY"
_SHOWN = 60
_LONGEST = 2**20  # bytes of a line: a row is some hundred

Found: TypeAlias = dict[Place, QueryLosses]


def read_losses(path: Path, plan: SubsetPlan, queries: Corpus, seeds: int = 1) -> Found:
    """Read the losses of subsets of a plan, each with all of its queries.

    Either JSONL rows with ``subset`` (such as ``"0-17"``, or 17 where there is one instance; ``"0-before"``: before any
    fine-tune), ``query`` (an id, or a number in the instance's queries from 0 on), ``loss`` and, with several seeds,
    ``seed``. Or .npy of shape (subsets, queries), with several instances (instances, subsets, queries).

    Raises:
        DataError: a row cannot be used, a loss stands there twice or is not finite, or a subset lacks some.
    """
    if begins_as_npy(path):
        return _of_array(path, plan)
    table = _Table(plan, queries, seeds)
    for where, row in json_rows(path):
        table.add(row, where)
    return table.finished(path)


def read_one(path: Path, queries: Corpus) -> QueryLosses:
    """Read the losses of one instance's queries: .npy of ``(q,)``, a number a line, or rows with query and loss.

    Raises:
        DataError: as for :func:`read_losses`.
    """
    if begins_as_npy(path):
        array = _load(path)
        if array.shape not in ((len(queries),), (1, len(queries))):
            raise DataError(f"{path}: has shape {array.shape}; expected ({len(queries)},), a loss of each query.")
        return _finite(array.reshape(-1), path, "")
    numbers = _Losses(len(queries), "the queries")
    rows = {example.id: row for row, example in enumerate(queries)}
    for line, (where, row) in enumerate(json_rows(path)):
        if isinstance(row, dict):
            numbers.put(_query(row, rows, where), _loss(row, where), where)
        else:
            if line >= len(queries):
                raise DataError(f"{where}: is one loss more than the {len(queries)} queries. Write one for each.")
            numbers.put(line, _loss({"loss": row}, where), where)
    return numbers.finished(path)


def begins_as_npy(path: Path) -> bool:
    """True if a file is in NumPy's format; DataError if it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(_NUMPY)) == _NUMPY
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(f"{path}: cannot be read ({reason}); expected losses as JSONL or .npy. Check it.") from error


def json_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Each line's place and JSON value; blank lines are passed over."""
    with path.open("rb") as stream:
        number = 0
        while line := stream.readline(_LONGEST + 1):
            number += 1
            if len(line) <= _LONGEST and not line.strip():
                continue
            try:
                value = json.loads(line) if len(line) <= _LONGEST else None
            except (ValueError, RecursionError):
                value = None
            if value is None:
                raise DataError(f"{path}:{number}: is no JSON row of at most 1 MiB. Correct the line.")
            yield f"{path}:{number}", value


class _Losses:
    """Losses of one subset's queries, each put there once."""

    def __init__(self, count: int, name: str) -> None:
        self.values = np.full(count, np.nan, np.float32)
        self._name = name

    def put(self, row: int, loss: float, where: str) -> None:
        if not math.isnan(self.values[row]):
            raise DataError(f"{where}: the loss of query {row} of {self._name} stands there twice. Keep one.")
        self.values[row] = loss

    def finished(self, path: Path) -> QueryLosses:
        """The losses; refuses them if some are missing."""
        lacking = np.flatnonzero(np.isnan(self.values))
        if len(lacking):
            raise DataError(
                f"{path}: has no loss of query {lacking[0]} of {self._name}{and_more(len(lacking) - 1)}; expected "
                f"one of each of its {len(self.values)} queries. Add them."
            )
        return self.values


class _Table:
    """Losses of all subsets, as rows come."""

    def __init__(self, plan: SubsetPlan, queries: Corpus, seeds: int) -> None:
        self._plan = plan
        self._seeds = seeds
        self._rows: list[Mapping[str, int]] = [
            {example.id: row for row, example in enumerate(queries.take(plan.query_rows(i)))} for i in range(len(plan))
        ]
        self._found: dict[Place, _Losses] = {}

    def add(self, row: Any, where: str) -> None:
        """Take one row."""
        if not isinstance(row, dict):
            raise DataError(f"{where}: is no object; expected subset, query and loss. Correct the line.")
        place = self._place(row, where)
        if place not in self._found:
            name = f"subset {subset_name(place)}" + (f", seed {place.seed}" if place.seed else "")
            self._found[place] = _Losses(len(self._rows[place.instance]), name)
        self._found[place].put(_query(row, self._rows[place.instance], where), _loss(row, where), where)

    def _place(self, row: Mapping[str, Any], where: str) -> Place:
        name, seed = row.get("subset"), row.get("seed", 0)
        if type(seed) is not int or not 0 <= seed < self._seeds:
            raise DataError(
                f"{where}: seed is {_shown(seed)}; expected a number from 0 to {self._seeds - 1}. Correct it, or give "
                "--seeds."
            )
        text = f"0-{name}" if type(name) is int and len(self._plan) == 1 else name
        instance, dash, subset = text.partition("-") if isinstance(text, str) else ("", "", "")
        number = _number(instance, len(self._plan))
        member = _number(subset, self._plan.subset_count)
        if not dash or number is None or (member is None and subset != BEFORE):
            last = f"{len(self._plan) - 1}-{self._plan.subset_count - 1}"
            raise DataError(f"{where}: there is no subset {_shown(name)}; expected 0-0 to {last}, or 0-{BEFORE}.")
        return Place(number, member, 0 if member is None else seed)

    def finished(self, path: Path) -> Found:
        """The losses by their places; every subset that is there has all of its queries."""
        return {place: losses.finished(path) for place, losses in self._found.items()}


def _of_array(path: Path, plan: SubsetPlan) -> Found:
    array = _load(path)
    counts = [len(plan.query_rows(i)) for i in range(len(plan))]
    wanted = (len(plan), plan.subset_count, counts[0])
    if len(set(counts)) > 1:
        raise DataError(f"{path}: the instances have different numbers of queries. Write the losses as JSONL.")
    if array.shape != wanted and (len(plan) > 1 or array.shape != wanted[1:]):
        shown = wanted if len(plan) > 1 else wanted[1:]
        names = "instances, subsets and queries" if len(plan) > 1 else "subsets and queries"
        raise DataError(f"{path}: has shape {array.shape}; expected {shown}, {names}. Write it so, or as JSONL.")
    cube = array.reshape(wanted)
    return {
        Place(i, j, 0): _finite(cube[i, j], path, f" of subset {subset_name(Place(i, j, 0))}")
        for i in range(wanted[0])
        for j in range(wanted[1])
    }


def _load(path: Path) -> np.ndarray:
    """An array of numbers."""
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # damaged headers of arrays raise nearly anything
        raise DataError(f"{path}: is no array that can be read without pickle. Write it with np.save.") from error
    if array.dtype.kind not in "fiu":
        raise DataError(f"{path}: holds {array.dtype}; expected numbers. Write the losses as float32.")
    return array


def _finite(losses: np.ndarray, path: Path, of: str) -> Float32[np.ndarray, " q"]:
    wrong = np.flatnonzero(~(np.abs(losses.astype(np.float64)) <= MOST))
    if len(wrong):
        raise DataError(
            f"{path}: the loss of query {wrong[0]}{of} is {losses[wrong[0]]}; expected a finite number. Correct it, "
            "or leave the subset out and write JSONL."
        )
    return np.ascontiguousarray(losses, np.float32)


def _query(row: Mapping[str, Any], rows: Mapping[str, int], where: str) -> int:
    """Number of the query that a row names."""
    name = row.get("query")
    if type(name) is int and 0 <= name < len(rows):
        return name
    if isinstance(name, str) and name in rows:
        return rows[name]
    raise DataError(
        f"{where}: there is no query {_shown(name)}; expected an id of its {len(rows)} queries, or a number from 0 to "
        f"{len(rows) - 1}. Correct it."
    )


def _loss(row: Mapping[str, Any], where: str) -> float:
    loss = row.get("loss")
    if not isinstance(loss, int | float) or isinstance(loss, bool) or not abs(loss) <= MOST:
        raise DataError(f"{where}: loss is {_shown(loss)}; expected a finite number. Correct it.")
    return float(loss)


def _number(text: str, count: int) -> int | None:
    """A number below a count, written plainly; None for other texts."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and str(int(text)) == text):
        return None
    return int(text) if int(text) < count else None


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def and_more(count: int) -> str:
    """Words on how many more are missing than the one that an error names; empty for none."""
    return f", nor of {count:,} more" if count else ""


_UNNAMED = "another trainer's"


def outside_origin(lm: str | None, trainer: Mapping[str, Any]) -> dict[str, Any]:
    """The LM by its name alone, which nobody can check, and the trainer in place of settings of a fine-tune."""
    whole = lm or _UNNAMED
    # Two runs may each have a checkpoint-500; only the last part is shown, since paths are private.
    named = str(Path(whole).resolve()) if Path(whole).is_dir() else whole
    fingerprint = json_digest({"kind": "LM of another trainer", "name": named})
    known = {"name": Path(whole).name, "fingerprint": fingerprint}
    return {"lm": known, "precision": "unknown", "fine_tune": dict(trainer)}


def no_losses(plan: SubsetPlan, place: Place) -> QueryLosses:
    """The losses before any fine-tune where nobody measured them: NaN, which is read as missing."""
    return np.full(len(plan.query_rows(place.instance)), np.nan, np.float32)
