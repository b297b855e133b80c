"""Labels by another trainer: write subsets to files, read losses back."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from airrep.arrays import whole_number
from airrep.corpus.corpus import Corpus
from airrep.corpus.inputs import CorpusLike
from airrep.errors import ConfigError, DataError, TrainingError, many
from airrep.labels.farm import LabelData, LabelRun, LossSource, Outcomes, PlanLike, make_labels
from airrep.labels.labels import Labels, shown_json
from airrep.labels.ledger import QueryLosses
from airrep.labels.plan import LabelTask, Place, SubsetPlan, fine_tune_seed
from airrep.runtime.artifacts import file_digest, json_digest, seal
from airrep.runtime.engine import Engine, InProcess, Outcome
from airrep.runtime.ray_engine import make_engine
from airrep.runtime.stage import Stage

KIND = "subset files"
LIST = "subsets.jsonl"
BEFORE = "before"
"""Text in place of a subset's number for the model before any fine-tune."""
MOST = 1e30
"""Largest absolute loss, far below float32's limit."""
_NUMPY = b"\x93NUMPY"
_LONGEST = 2**20  # bytes of a line; a row has a few hundred
_NEEDED = ("{train}", "{losses}")
_ERRORS, _LINES = 4096, 3  # bytes of stderr that are read, lines that an error shows

Found: TypeAlias = dict[Place, QueryLosses]


def subset_name(place: Place) -> str:
    """Return a subset's name in files of losses: instance and number, such as ``0-17``, or ``0-before``."""
    return f"{place.instance}-{BEFORE if place.subset is None else place.subset}"


def write_subset_files(
    plan: SubsetPlan, train: Corpus, queries: Corpus | None, out: str | Path, *, replace: bool = False
) -> Path:
    """Write each subset as a JSONL file, and the queries of each instance.

    ``subsets.jsonl`` has a row for each subset: its name ``subset``, the paths ``train`` and ``queries`` relative to
    the list's folder, and the number of ``examples``. Finished files of the same plan are kept as they are.
    DataError: the corpora are not the plan's. ArtifactError: *out* holds something else.
    """
    plan.check_corpora(train, queries)
    request = {"plan": plan.fingerprint, "train": plan.train_fingerprint, "queries": plan.query_fingerprint}
    stage = Stage(out, KIND, "subsets written", request, replace)
    if stage.finished() is None:
        with stage.making() as folder:
            listed = list(_write(plan, train, train if queries is None else queries, folder))
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


def read_losses(path: Path, plan: SubsetPlan, queries: Corpus, seeds: int = 1) -> Found:
    """Read the losses of subsets of a plan, each with all of its queries.

    Either JSONL rows with ``subset`` (such as ``"0-17"``, or 17 where there is one instance; ``"0-before"``: before any
    fine-tune), ``query`` (an id, or a number in the instance's queries from 0 on), ``loss`` and, with several seeds,
    ``seed``. Or .npy of shape (subsets, queries), with several instances (instances, subsets, queries). DataError: a
    row cannot be used, a loss is given twice or is not finite, or a subset lacks losses.
    """
    if _is_npy(path):
        return _of_array(path, plan)
    rows = [_numbered(queries.take(plan.query_rows(i))) for i in range(len(plan))]
    found: dict[Place, _Losses] = {}
    for where, row in json_rows(path):
        if not isinstance(row, dict):
            raise DataError(f"{where}: is not a JSON object with subset, query and loss. Correct the line.")
        place = _place(row, where, plan, seeds)
        if place not in found:
            found[place] = _Losses(rows[place.instance], f"subset {_with_seed(place)}")
        found[place].put(row, where)
    return {place: losses.finished(path) for place, losses in found.items()}


def read_one(path: Path, queries: Corpus) -> QueryLosses:
    """Read the losses of one instance's queries: .npy of ``(q,)``, a number a line, or rows with query and loss."""
    if _is_npy(path):
        array = _load(path)
        if array.shape not in ((len(queries),), (1, len(queries))):
            raise DataError(f"{path}: has shape {array.shape}, but must be ({len(queries)},): one loss per query.")
        return _finite(array.reshape(-1), path, "")
    found = _Losses(_numbered(queries), "this subset")
    for number, (where, row) in enumerate(json_rows(path)):
        if not isinstance(row, dict) and number >= len(queries):
            raise DataError(
                f"{where}: is one loss too many for {many(len(queries), 'query', 'queries')}. Write one loss per query."
            )
        found.put(row if isinstance(row, dict) else {"query": number, "loss": row}, where)
    return found.finished(path)


def json_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield each line's place and JSON value; skip blank lines."""
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
                raise DataError(f"{path}:{number}: is not valid JSON, or is longer than 1 MiB. Correct the line.")
            yield f"{path}:{number}", value


def _is_npy(path: Path) -> bool:
    """True if a file is in NumPy's format; DataError if it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(len(_NUMPY)) == _NUMPY
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(f"{path}: cannot be read ({reason}). Give a file of losses, as JSONL or .npy.") from error


def _numbered(queries: Corpus) -> dict[str, int]:
    return {example.id: row for row, example in enumerate(queries)}


class _Losses:
    """Collects the losses of one subset's queries, each query once."""

    def __init__(self, rows: Mapping[str, int], name: str) -> None:
        self._rows, self._name = rows, name
        self._values = np.full(len(rows), np.nan, np.float32)

    def put(self, row: Mapping[str, Any], where: str) -> None:
        query, loss, count = row.get("query"), row.get("loss"), len(self._rows)
        number = self._rows.get(query) if isinstance(query, str) else query
        if type(number) is not int or not 0 <= number < count:
            raise DataError(
                f"{where}: there is no query {shown_json(query)}. Give the id of one of "
                f"{many(count, 'query', 'queries')}, or a number from 0 to {count - 1}."
            )
        if not isinstance(loss, int | float) or isinstance(loss, bool) or not abs(loss) <= MOST:
            raise DataError(f"{where}: loss is {shown_json(loss)}, but must be a finite number. Correct it.")
        if not np.isnan(self._values[number]):
            raise DataError(f"{where}: gives the loss of query {number} of {self._name} a second time. Keep one.")
        self._values[number] = float(loss)

    def finished(self, path: Path) -> QueryLosses:
        """Return the losses; DataError if some are missing."""
        lacking = np.flatnonzero(np.isnan(self._values))
        if len(lacking):
            raise DataError(
                f"{path}: lacks {len(lacking):,} of {many(len(self._values), 'loss', 'losses')} of {self._name}; "
                f"the first is that of query {lacking[0]}. Add the missing losses."
            )
        return self._values


def _place(row: Mapping[str, Any], where: str, plan: SubsetPlan, seeds: int) -> Place:
    name, seed = row.get("subset"), row.get("seed", 0)
    if type(seed) is not int or not 0 <= seed < seeds:
        raise DataError(
            f"{where}: seed is {shown_json(seed)}, but must be from 0 to {seeds - 1}. Correct the seed, or give a "
            "larger --seeds."
        )
    text = f"0-{name}" if type(name) is int and len(plan) == 1 else str(name)
    found = re.fullmatch(rf"(0|[1-9]\d{{0,8}})-(0|[1-9]\d{{0,8}}|{BEFORE})", text, re.ASCII)
    number = -1 if found is None else int(found[1])
    member = None if found is None or found[2] == BEFORE else int(found[2])
    if not 0 <= number < len(plan) or (member or 0) >= plan.subset_count:
        last = f"{len(plan) - 1}-{plan.subset_count - 1}"
        raise DataError(
            f"{where}: there is no subset {shown_json(name)}. Write INSTANCE-SUBSET, from 0-0 to {last}. INSTANCE is "
            f"the number of a train/query split. For losses before any fine-tune, write INSTANCE-{BEFORE}."
        )
    return Place(number, member, 0 if member is None else seed)


def _of_array(path: Path, plan: SubsetPlan) -> Found:
    array = _load(path)
    counts = {len(plan.query_rows(i)) for i in range(len(plan))}
    if len(counts) > 1:
        raise DataError(
            f"{path}: an array cannot hold these losses, because the instances (train/query splits) have different "
            "numbers of queries. Write the losses as JSONL."
        )
    wanted = (len(plan), plan.subset_count, counts.pop())
    if array.shape != wanted and (len(plan) > 1 or array.shape != wanted[1:]):
        names = "instances, subsets and queries" if len(plan) > 1 else "subsets and queries"
        shape = wanted if len(plan) > 1 else wanted[1:]
        raise DataError(f"{path}: has shape {array.shape}, but must be {shape}: {names}. Correct it, or use JSONL.")
    places = [Place(i, j, 0) for i in range(wanted[0]) for j in range(wanted[1])]
    rows = array.reshape(len(places), wanted[2])
    return {
        place: _finite(row, path, f" of subset {subset_name(place)}") for place, row in zip(places, rows, strict=True)
    }


def _load(path: Path) -> np.ndarray:
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # damaged headers of arrays raise nearly anything
        raise DataError(f"{path}: is not an array that NumPy reads without pickle. Write it with np.save.") from error
    if array.dtype.kind not in "fiu":
        raise DataError(f"{path}: holds {array.dtype}, not numbers. Write the losses as float32.")
    return array


def _finite(losses: np.ndarray, path: Path, of: str) -> QueryLosses:
    wrong = np.flatnonzero(~(np.abs(losses.astype(np.float64)) <= MOST))
    if len(wrong):
        instead = f", or write the losses as JSONL without those{of}" if of else ""
        raise DataError(
            f"{path}: the loss of query {wrong[0]}{of} is {losses[wrong[0]]}, but must be a finite number. Correct "
            f"this loss{instead}."
        )
    return np.ascontiguousarray(losses, np.float32)


def _with_seed(place: Place) -> str:
    return subset_name(place) + (f", seed {place.seed}" if place.seed else "")


def _origin(lm: str | None, trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the LM by its name, which cannot be checked, and the trainer in place of fine-tuning settings."""
    whole = lm or "another trainer's"
    # Two runs may each have a checkpoint-500, so the whole path counts; only its last part is shown: paths are private.
    named = str(Path(whole).resolve()) if Path(whole).is_dir() else whole
    fingerprint = json_digest({"kind": "LM of another trainer", "name": named})
    known = {"name": Path(whole).name, "fingerprint": fingerprint}
    return {"lm": known, "precision": "unknown", "fine_tune": dict(trainer)}


def _unmeasured(plan: SubsetPlan, place: Place) -> QueryLosses:
    """Return NaN, which is read as missing, for losses before any fine-tune that nobody measured."""
    return np.full(len(plan.query_rows(place.instance)), np.nan, np.float32)


def import_labels(
    plan: PlanLike,
    train: CorpusLike,
    queries: CorpusLike | None,
    losses: str | Path,
    out: str | Path,
    *,
    lm: str | None = None,
    seeds: int = 1,
    partial: bool = False,
) -> Labels:
    """Make labels from the losses that another trainer measured after training on each subset.

    Other arguments and errors are those of :func:`airrep.labels.farm.label`.

    Args:
        losses: file of losses, as :func:`airrep.labels.outside.read_losses` reads it.
        lm: name, folder or Hub id of the model that was trained; labels with equal values may be used together.
        seeds: number of runs on each subset, in rows with ``seed``.
        partial: finish without the subsets that the file lacks; their losses are NaN.

    Raises:
        DataError: losses are missing, given twice, or not finite.

    Example:
        >>> plan = airrep.open("runs/subsets")
        >>> from airrep.labels.outside import import_labels
        >>> labels = import_labels(plan, train, None, "losses.npy", "runs/imported")
        >>> labels.complete
        True
    """
    if not isinstance(losses, str | Path):
        raise ConfigError(
            f"losses is a {type(losses).__name__}, but must be the path of a file. Save an array with numpy.save(path, "
            "array)."
        )
    data, path = LabelData.given(plan, train, queries), Path(losses)
    source = _Imported(
        data.plan, path, read_losses(path, data.plan, data.queries, whole_number("seeds", seeds)), partial
    )
    origin = {**_origin(lm, {"trainer": "imported"}), "losses": file_digest(path)}
    found = LossSource(origin, source.outcomes, source.check)
    return make_labels(found, data, out, LabelRun(seeds, retries=0, partial=partial))


class _Imported(NamedTuple):
    """Losses that were read from a file."""

    plan: SubsetPlan
    path: Path
    found: Found
    partial: bool

    def check(self, tasks: Sequence[LabelTask]) -> None:
        """Refuse a file that lacks losses of a subset."""
        asked = [task.place for task in tasks if task.place.subset is not None]
        lacking = [place for place in asked if place not in self.found]
        if lacking and not self.partial:
            raise DataError(
                f"{self.path}: has no losses for {len(lacking):,} of {many(len(asked), 'fine-tune')}; the first is "
                f"subset {_with_seed(lacking[0])}. Add these losses, or finish without them: --partial"
            )

    def outcomes(self, tasks: list[LabelTask], retries: int) -> Outcomes:  # noqa: ARG002
        """Yield the losses that the file has; for other tasks, the reason why they have none."""
        for task in tasks:
            losses = self.found.get(task.place)
            if losses is None and task.place.subset is None:
                losses = self._before(task.place)
            reason = f"{self.path.name} has no losses for this subset" if losses is None else None
            yield Outcome(task, losses, reason, 0.0, 1, 0.0)

    def _before(self, place: Place) -> QueryLosses:
        """Return the losses before any fine-tune, of this instance or another one with the same queries; else NaN."""
        asked = self.plan.query_rows(place.instance)
        for other, losses in self.found.items():
            if other.subset is None and np.array_equal(asked, self.plan.query_rows(other.instance)):
                return losses
        return _unmeasured(self.plan, place)


def label_by_command(
    plan: PlanLike,
    train: CorpusLike,
    queries: CorpusLike | None,
    command: str,
    out: str | Path,
    *,
    lm: str | None = None,
    engine: Engine | str | None = None,
    **run: Any,
) -> Labels:
    """Run a command for each subset, and record the losses that it writes.

    The command is split into words as a shell does, but no shell runs: ``{train}``, ``{queries}`` and ``{losses}`` in a
    word become paths, ``{seed}`` a number, ``{subset}`` a name such as ``0-17``, and ``{folder}`` a folder for its own
    files, which is removed afterwards. The command must write the loss of each query into the file ``{losses}``, as
    :func:`airrep.labels.outside.read_one` reads it. Its stdout is dropped. Each run counts as a fine-tune; other
    arguments and errors are those of :func:`airrep.labels.farm.label`.

    Args:
        command: the command line to run.
        lm: name, folder or Hub id of the model that the command trains; labels with equal values and equal commands
            may be used together.

    Raises:
        ConfigError: the command's program is not found, or the command lacks ``{train}`` or ``{losses}``.

    Example:
        >>> plan, command = airrep.open("runs/subsets"), "python trainer.py {train} {queries} {losses}"
        >>> from airrep.labels.outside import label_by_command
        >>> labels = label_by_command(plan, train, None, command, "runs/by-command")
        >>> labels.complete
        True
    """
    data, running = LabelData.given(plan, train, queries), make_engine(engine) or InProcess()
    setup = CommandSetup(parse_command(command), data)
    origin = _origin(lm, {"trainer": "command", "command": command})
    source = LossSource(origin, lambda tasks, retries: running.run(setup, tasks, retries))
    return make_labels(source, data, out, LabelRun(**run))


def parse_command(command: str) -> tuple[str, ...]:
    """Split a command into words (ConfigError: quotes are open, a path is missing, or the program is not found)."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise ConfigError(f"--command: cannot be split into words ({error}). Close its quotes.") from error
    lacking = next((place for place in _NEEDED if not any(place in word for word in words)), None)
    if lacking is not None:
        raise ConfigError(
            f"--command: does not contain {lacking}, which airrep replaces by a path. Write 'my_train.sh {{train}} "
            "{queries} {losses}'."
        )
    if shutil.which(words[0]) is None:
        raise ConfigError(
            f"--command: there is no program {words[0]!r} that can be run. Give its path, and make it executable "
            "(chmod +x)."
        )
    return words


@dataclass(frozen=True)
class CommandSetup:
    """The worker that does label tasks by running the command."""

    words: tuple[str, ...]
    data: LabelData

    def __call__(self) -> Callable[[LabelTask], QueryLosses]:
        return self.losses

    def losses(self, task: LabelTask) -> QueryLosses:
        """Return the losses after one run (TrainingError: the run failed, or its losses cannot be used)."""
        plan, place = self.data.plan, task.place
        if place.subset is None:
            return _unmeasured(plan, place)
        queries = self.data.queries.take(plan.query_rows(place.instance))
        with tempfile.TemporaryDirectory(prefix="airrep-", ignore_cleanup_errors=True) as folder:
            paths = {name: Path(folder) / f"{name}.jsonl" for name in ("train", "queries", "losses")}
            self.data.train.take(plan.subset_rows(place.instance, place.subset)).to_jsonl(paths["train"])
            queries.to_jsonl(paths["queries"])
            seed = fine_tune_seed(plan, place) % 2**31  # most trainers take no larger seed
            named = {**paths, "seed": seed, "subset": subset_name(place), "folder": folder}
            _run([fill(word, named) for word in self.words], str(place), Path(folder) / "stderr")
            try:
                return read_one(paths["losses"], queries)
            except DataError as error:
                problem = str(error).replace(str(paths["losses"]), "{losses}")
                raise TrainingError(f"{place}: the command ran, but its losses cannot be used: {problem}") from error


def fill(word: str, named: Mapping[str, object]) -> str:
    """Replace the names in braces in a word, once: names inside the inserted values stay."""
    return re.sub("{(" + "|".join(named) + ")}", lambda found: str(named[found[1]]), word)


def _run(words: Sequence[str], name: str, errors: Path) -> None:
    """Run a program without a shell, with its stderr in a file; if it fails, TrainingError with the file's end."""
    with errors.open("wb") as stderr:
        try:
            status = subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, check=False
            ).returncode
        except OSError as error:
            raise ConfigError(
                f"--command: cannot be started ({error.strerror}). If it is a script, begin it with #!/bin/sh."
            ) from error
    if status != 0:
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"failed with exit status {status}"
        raise TrainingError(f"{name}: the command {how}: {_last_lines(errors) or 'nothing on stderr'}.")


def _last_lines(path: Path) -> str:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _ERRORS))
        lines = [line.strip() for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
    text = " | ".join(lines[-_LINES:])
    return "".join(letter if letter.isprintable() else " " for letter in text)[-500:]
