"""Evaluations made up for tests of the report."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import airrep
from airrep.answers.proof import Effect, Effects, NamedRow, ProofResult, Proved
from airrep.corpus.corpus import Example
from airrep.evaluation.result import Cost, Difference, Evaluation, Measure, Row
from airrep.evaluation.statistics.metrics import lds
from airrep.runtime.artifacts import canonical_json, new_artifact
from airrep.runtime.publishing import write_file

METHODS = {
    "airrep": (0.42, 1164.0, 0.0096), "logra": (0.33, 41520.0, 0.071), "gte": (0.19, 1164.0, 0.0097),
    "tfidf": (0.20, 240.0, 0.00004), "less": (0.31, 24588.0, 0.11), "trak": (0.27, 41520.0, 0.074),
    "dsdm": (0.26, 41520.0, 0.073), "tracin": (0.29, 41520.0, 0.069), "rds": (0.12, 2316.0, 0.021),
    "dsir": (0.15, 700.0, 0.00006), "AirRep without attention": (0.36, 1164.0, 0.0096),
    "random": (-0.01, 8.0, 0.000001),
}  # fmt: skip
"""Value, bytes, and seconds of the rows of a made-up evaluation."""


def made_row(
    name: str, value: float, per_query: np.ndarray, first: float | None, more: Mapping[str, Any], **fields: Any
) -> Row:
    """A row whose interval is its value ± 0.04."""
    gap = None if first is None else value - first
    _, size, seconds = METHODS.get(name, (0.0, 100.0, 0.001))
    known = {
        "method": {"AirRep without attention": "airrep"}.get(name, name),
        "pool": "attention" if name == "airrep" else "sum",
        "temperature": 0.2 if name == "airrep" else None,
        "cost": Cost(size, seconds),
        "difference": None
        if gap is None
        else Difference(gap, (gap - 0.05, gap + 0.05), 0.0004 if gap < -0.05 else 0.3),
    }
    interval = (value - 0.04, value + 0.04)
    return Row(name=name, value=value, interval=interval, per_query=per_query, more=more, **{**known, **fields})


def made_evaluation(
    measure: Measure = "lds",
    names: Sequence[str] = ("airrep", "logra", "tfidf"),
    *,
    seed: int = 0,
    queries: int = 40,
    subsets: int = 30,
    shift: float = 0.0,
    instances: Sequence[str] = ("a",),
    more: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Evaluation:
    """Rows around the values of METHODS; one query of the second row is left out."""
    generator = np.random.default_rng(seed)
    values = {name: METHODS.get(name, (0.2,))[0] * (1 + shift) for name in names}
    rows = []
    for place, (name, value) in enumerate(values.items()):
        per_query = value + 0.1 * generator.standard_normal(queries)
        if place == 1:
            per_query[0] = np.nan
        first = None if place == 0 else next(iter(values.values()))
        rows.append(made_row(name, value, per_query, first, more or {}))
    keys = tuple((instances[number % len(instances)], f"q{number}") for number in range(queries))
    known: dict[str, Any] = {
        "subject": "0" * 64,
        "facts": {"subsets": subsets},
        "command": f"airrep evaluate --out runs/{seed}",
    }
    return Evaluation(measure=measure, rows=tuple(rows), queries=keys, **{**known, **fields})


def write_artifact(path: Path, kind: str, result: Mapping[str, Any]) -> Path:
    """An artifact of a kind that holds nothing but a result."""
    with new_artifact(path, kind, {}) as folder:
        write_file(folder / "result.json", canonical_json(result))
    return path


def made_proof(index: airrep.Index, queries: Sequence[Example]) -> ProofResult:
    """Effects of one row on some answers."""
    effect = Effect(0.4, 0.3, 0.5)
    effects = Effects(effect, effect, effect)
    answers = tuple(Proved(query, query, 2.0, 1.0, effects, effects) for query in queries)
    rows = (NamedRow(0, index.example(0)),)
    numbers = {"before": 2.0, "after": 1.0, "repeats": 6, "context": 500, "examples": 60}
    told = {"lm": "LM", "fine_tune": {}, "cautions": (), "provenance": index.provenance()}
    return ProofResult("These rows taught it.", "taught", rows, answers, effects, effects, **numbers, **told)


@dataclasses.dataclass
class Truth:
    """What :func:`compare_held_out` reads of an instance."""

    name: str
    losses: np.ndarray

    @property
    def query_texts(self) -> list[str]:
        return [f"{self.name} {row}" for row in range(len(self.losses))]


def world(seed: int, skills: dict[str, float], q: int = 12, m: int = 14) -> tuple[Truth, dict[str, np.ndarray]]:
    """Losses, and scores that know causes to some degree; each method errs by query, by subset, and by cell."""
    generator = np.random.default_rng(seed)
    taste, causes = generator.normal(size=(q, 3)), generator.normal(size=(3, m))
    losses = -(taste @ causes + generator.normal(size=(q, m)))
    scores = {
        name: taste @ (skill * causes + generator.normal(size=(3, m))) + generator.normal(size=(q, m))
        for name, skill in skills.items()
    }
    return Truth(str(seed), losses.astype(np.float32)), {n: s.astype(np.float32) for n, s in scores.items()}


def evaluation(
    worlds: list[tuple[Truth, dict[str, np.ndarray]]], names: list[str], measure: Measure = "lds"
) -> Evaluation:
    sign = 1 if measure == "lds" else -1
    rows, matrices = [], {f"losses/{truth.name}": truth.losses * np.float32(sign) for truth, _ in worlds}
    for number, name in enumerate(names):
        results = [lds(scores[name], truth.losses, resamples=10) for truth, scores in worlds]
        per_query = np.concatenate([result.per_query for result in results])
        rows.append(Row(name, "hash", float(np.mean([result.value for result in results])), (0.0, 1.0), per_query))
        matrices |= {f"{number}/{truth.name}": scores[name] for truth, scores in worlds}
    queries = tuple((truth.name, str(x)) for truth, _ in worlds for x in range(len(truth.losses)))
    facts = {"instances": [truth.name for truth, _ in worlds]}
    return Evaluation(measure, tuple(rows), queries, "same", facts=facts, request={"rows": names}, matrices=matrices)


def over_queries(values: dict[str, np.ndarray], tasks: list[str] | None = None) -> Evaluation:
    rows = tuple(Row(name, "hash", float(np.nanmean(v)), (0.0, 1.0), v) for name, v in values.items())
    queries = tuple(("", str(x)) for x in range(len(rows[0].per_query)))
    facts = {} if tasks is None else {"clusters": tasks}
    return Evaluation("classify" if tasks is None else "select", rows, queries, "same", facts=facts)


SKILLS = {"good": 2.0, "middling": 1.0, "bad": 0.2}
WORLDS = [world(1, SKILLS), world(2, SKILLS)]
