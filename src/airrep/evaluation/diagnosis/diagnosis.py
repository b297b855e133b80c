"""Diagnose labels and indexes; write and read the findings."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from airrep.evaluation.diagnosis.of_indexes import index_findings
from airrep.evaluation.diagnosis.of_labels import LEVELS, Finding, LabelStatistics, jsonable, label_findings
from airrep.evaluation.given import IndexesLike, InstancesLike, labelled_instances, named_indexes
from airrep.evaluation.result import Kept
from airrep.evaluation.statistics.metrics import RESAMPLES
from airrep.index.index import Index
from airrep.labels.instance import LabelledInstance, distinct, identity
from airrep.runtime.metering import read_label_times
from airrep.scoring.pooling import PoolLike


@dataclass(frozen=True, repr=False)
class Diagnosis(Kept):
    """Findings on what may hold an LDS back, worst first."""

    kind = "diagnosis"
    findings: tuple[Finding, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON values: instances, queries, subsets, seeds, sizes."""
    command: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)

    def _records(self) -> Iterator[dict[str, Any]]:
        for one in self.findings:
            yield {name: getattr(one, name) for name in ("about", "name", "level", "number", "verdict", "advice")}

    def summary(self) -> str:
        return self.sentence

    @property
    def sentence(self) -> str:
        """The outcome in one sentence."""
        counts = {level: sum(found.level == level for found in self.findings) for level in LEVELS}
        if not counts["bad"] and not counts["look"]:
            return f"Nothing here explains a low LDS; {counts['unknown']} could not be told."
        first = self.findings[0]
        causes = f"{counts['bad']} likely to hold the LDS back, {counts['look']} worth a look"
        return f"{causes}, {counts['unknown']} unknown. Begin with {first.name} ({first.about}): {first.advice}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        found = [one.to_dict() for one in self.findings]
        return {"sentence": self.sentence, "facts": dict(self.facts), "command": self.command, "findings": found}

    def _manifest(self) -> dict[str, Any]:
        shown = {f"{found.about}: {found.name}": f"{found.level}: {found.number}" for found in self.findings}
        return {"provenance": {"command": self.command, **shown}}


def diagnose(
    instances: InstancesLike,
    indexes: IndexesLike = (),
    pool: PoolLike | None = None,
    temperature: float = 1.0,
    *,
    seconds: float | None = None,
    resamples: int = RESAMPLES,
    command: str = "",
) -> Diagnosis:
    """Look for what may hold an LDS back, in labels and in indexes.

    Args:
        instances: queries, subsets and losses; or one instance alone.
        indexes: of any data that contains the train pools, or their paths; or one alone.
        pool: of all indexes; each method's own when None.
        temperature: of attention.
        seconds: of one fine-tune, where that is known.
        resamples: bootstrap draws behind each index's interval.
        command: the command line, to be kept.

    Raises:
        ConfigError: no instance, one given twice by its content, or a pool that does not fit.
        DataError: an instance of removals, losses that cannot be used, an index that lacks an example, or scores that
            are not finite.

    Example:
        >>> from airrep.evaluation.diagnosis.diagnosis import diagnose
        >>> found = diagnose(instances[:1], resamples=100)
        >>> isinstance(found.sentence, str)
        True
    """
    judged = labelled_instances(instances, "diagnose")
    opened = [index for _, index in named_indexes(indexes, "diagnose")]
    labels = LabelStatistics(judged, seconds)
    request = diagnosis_request(judged, opened, pool, temperature)
    findings = label_findings(labels)
    for index in opened:
        findings += index_findings(index, labels, pool, temperature, resamples=resamples)
    ordered = sorted(findings, key=lambda one: LEVELS.index(one.level))
    return Diagnosis(tuple(ordered), jsonable(labels.summary()), command, request)


def diagnosis_request(
    instances: Sequence[LabelledInstance], indexes: Sequence[Index], pool: PoolLike | None, temperature: float
) -> dict[str, Any]:
    """Request of a diagnosis; errors as of :func:`diagnose` for an instance that is given twice."""
    distinct(instances)
    digests = {str(number): _digest(instance) for number, instance in enumerate(instances)}
    prints = {str(number): index.fingerprint for number, index in enumerate(indexes)}
    asked = None if pool is None else str(pool)
    return {"labels": digests, "indexes": prints, "pool": asked, "temperature": temperature}


def _digest(instance: LabelledInstance) -> str:
    """64 hex digits over an instance with all its losses."""
    found = sha256(identity(instance).encode())
    for array in (instance.base_losses, instance.by_seed):
        found.update(b" none" if array is None else f" {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def seconds_of_fine_tunes(folders: Sequence[str | Path]) -> float | None:
    """Median seconds of a fine-tune in label directories that have noted them; None where none has."""
    lines = [line for folder in folders for line in read_label_times(Path(folder))]
    taken = [line["seconds"] for line in lines if "subset" in str(line["task"])]
    return statistics.median(taken) if taken else None
