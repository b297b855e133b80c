"""Subsets and queries as JSONL files, for another trainer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airrep.corpus.corpus import Corpus
from airrep.labels.plan import SubsetPlan
from airrep.labels.tasks import Place
from airrep.runtime.artifacts.manifests import seal
from airrep.runtime.stage import Stage

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
