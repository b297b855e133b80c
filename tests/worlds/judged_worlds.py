"""Worlds in which methods know causes to some degree, and evaluations of them with matrices."""

import dataclasses

import numpy as np

from airrep.evaluation.result import Evaluation, Measure, Row
from airrep.evaluation.statistics.metrics import lds


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
