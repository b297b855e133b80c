"""Read results and answers of any kind."""

from collections.abc import Mapping
from pathlib import Path

from airrep.answers.audit import AuditResult
from airrep.answers.clean import CleanResult
from airrep.answers.mix import MixResult
from airrep.answers.proof import ProofResult
from airrep.answers.together import SetResult
from airrep.errors import ArtifactError
from airrep.index.results.kinds import GroupResult, TopResult, WhatIfResult
from airrep.index.results.result import Answer, Result
from airrep.runtime.artifacts import fetched, read_manifest

_ANSWERS = (CleanResult, AuditResult, MixResult, SetResult, ProofResult)
ANSWERS: Mapping[str, type[Answer]] = {answer.kind: answer for answer in _ANSWERS}
"""Classes of answers, by the kinds of their artifacts."""
KINDS: Mapping[str, type[Result]] = {**{kind.kind: kind for kind in (TopResult, GroupResult, WhatIfResult)}, **ANSWERS}
"""Classes of results and answers, by the kinds of their artifacts."""


def read_result(path: str | Path) -> Result:
    """Read a result that ``save`` wrote as an artifact, after checking its bytes.

    Raises:
        ArtifactError: the artifact is not a result, is unfinished, or was altered.
        DataError: a field is missing or invalid.

    Example:
        >>> path = index.top(queries, k=3).save("runs/hits")
        >>> len(airrep.open("runs/hits"))
        5
    """
    folder = fetched(path)
    kind = read_manifest(folder)["kind"]
    if kind not in KINDS:
        raise ArtifactError(
            f"{folder}: is of kind '{kind}', which holds no result. Give a directory of one of these kinds: "
            f"{', '.join(KINDS)}. `airrep report` also takes the kinds evaluation, comparison, plan and diagnosis."
        )
    return KINDS[kind].read(folder)
