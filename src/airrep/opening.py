"""Opens any directory that airrep wrote, by its kind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from airrep.labels.labels import holds_labels
from airrep.runtime.artifacts import MANIFEST, fetched


def open(path: str | Path) -> Any:  # noqa: A001
    """Open a directory that airrep wrote: an index, labels, subsets, an evaluation, a result, a training record.

    For an index, :class:`airrep.Index` does the same and gives type checkers its type.

    Returns:
        An object for the directory's kind: :class:`airrep.Index`; ``Labels``, finished or not; ``SubsetPlan``;
        ``Evaluation``; ``Comparison``; ``Diagnosis``; the result of a question; or ``TrainingRecord``.

    Raises:
        ArtifactError: the directory is missing, unfinished, altered, or of a kind without a Python class.

    Example:
        >>> path = index.top(queries, k=3).save("runs/hits")
        >>> len(airrep.open("runs/hits"))
        5
        >>> airrep.open(index.path).method
        'tfidf'
    """
    from airrep.lm.trainer_records.record import ABOUT, read_training_record

    folder = fetched(path, loose=True)
    if holds_labels(folder):
        from airrep.labels.labels import Labels

        return Labels(path)
    if (folder / ABOUT).is_file():
        return read_training_record(folder)
    from airrep.answers.reading import read_result
    from airrep.evaluation.comparison import Comparison
    from airrep.evaluation.diagnosis import Diagnosis
    from airrep.evaluation.result import Evaluation
    from airrep.index.index import Index
    from airrep.labels.plan import open_plan
    from airrep.runtime.artifacts import read_manifest

    readers: dict[str, Callable[[Path], Any]] = {
        "index": Index,
        "subsets": open_plan,
        "evaluation": Evaluation.read,
        "comparison": Comparison.read,
        "diagnosis": Diagnosis.read,
    }
    whole = (folder / MANIFEST).is_file()  # without a manifest, Index says what is wrong
    kind = read_manifest(folder)["kind"] if whole else "index"
    return readers.get(kind, read_result)(folder if whole else Path(path))
