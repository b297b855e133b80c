"""From measured rates to what a corpus will take."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airrep.planning.budget import Costs
from airrep.planning.plan import MethodPlan, Plan, Predicted, PredictionCheck, crossover, line, mean_of, rate
from airrep.planning.plan_request import ENCODER, Measures, PlanRequest
from airrep.planning.trials import Repeats, Trial
from airrep.runtime.metering import describe_machine

SHARD_ROWS = 4096
"""Examples whose features are held at once."""
HELD_FEATURES, HELD_TEXTS = 3, 2
"""Copies of a shard's features, and of the corpus's texts, that are in memory at once at most."""


def make_plan(wish: PlanRequest, measures: Measures, command: str = "", checks: Sequence[PredictionCheck] = ()) -> Plan:
    """Predict from what was measured.

    Args:
        wish: what is planned.
        measures: of this machine.
        command: that asked for it.
        checks: comparisons with real runs.
    """
    encoder = encoder_plan(wish, measures)
    others = [method_plan(wish, name, measures.methods[name]) for name in wish.methods]
    return Plan(
        command=command,
        machine=describe_machine(),
        corpus=wish.examples,
        lm=lm_name(wish.lm.lm),
        lm_parameters=measures.parameters,
        workers=wish.workers,
        methods=(encoder, *others),
        crossovers={
            other.name: crossover(encoder.fixed.plus(other.fixed.times(-1.0)), other.per_example, encoder.per_example)
            for other in others
            if other.reads_lm
        },
        last_real=tuple(checks),
        facts=_facts(wish, measures),
    )


def lm_name(name: str) -> str:
    """A Hub id, or the last part of a folder's path."""
    return Path(name).name if Path(name).is_absolute() else name


def one_example(repeats: Repeats, lengths: Sequence[int], examples: int) -> Predicted:
    """Seconds of one example of a corpus: seconds of a token by the mean length."""
    return rate(repeats.seconds, repeats.tokens).by(mean_of(lengths, examples))


def method_plan(wish: PlanRequest, name: str, trial: Trial) -> MethodPlan:
    """What a method needs that is not trained."""
    start, by_token = line(*trial.fits)
    slope = by_token * mean_of(trial.lengths, wish.examples).value
    each = slope if trial.sample is None else trial.check_seconds
    learnt = 0.0 if trial.sample is None else max(0.0, slope - each) * min(trial.sample, wish.examples)
    encoding = one_example(trial.repeats, trial.lengths, wish.examples)
    return MethodPlan(
        name,
        fixed=Predicted(start + learnt),
        per_example=Predicted(encoding.value + each, encoding.half),
        bytes_per_example=trial.bytes_per_example,
        store_bytes_per_example=trial.store_bytes_per_example,
        memory_bytes=_memory(wish, trial),
        parts={"fit": start + learnt},
        reads_lm=trial.parameters is not None,
    )


def _memory(wish: PlanRequest, trial: Trial) -> float:
    """Peak of a process: what was measured, the corpus's texts, and a shard's features."""
    texts = sum(len(f"{example.prompt}{example.response}".encode()) for example in wish.texts[:1000])
    corpus = HELD_TEXTS * wish.examples * texts / min(1000, len(wish.texts))
    return trial.memory + corpus + HELD_FEATURES * trial.row_bytes * min(SHARD_ROWS, wish.examples)


def encoder_plan(wish: PlanRequest, measures: Measures) -> MethodPlan:
    """What the trained encoder needs: labels and training before the first example."""
    plain = method_plan(wish, ENCODER, measures.methods[ENCODER])
    labels, training = label_seconds(wish, measures), training_seconds(wish, measures, plain.per_example)
    memory = max(plain.memory_bytes, measures.labels.memory, measures.training.memory)
    parts = {"labels": labels.value, "training": training.value, **plain.parts}
    fixed = labels.plus(training, plain.fixed)
    return replace(plain, fixed=fixed, parts=parts, memory_bytes=memory)


def label_seconds(wish: PlanRequest, measures: Measures) -> Predicted:
    """Of all fine-tunes: to learn from, to stop and to judge by."""
    plan = wish.learning
    tune, ask = label_rates(wish, measures)
    subsets = plan.subsets + 2 * plan.held_out_subsets
    asked = plan.subsets * plan.queries + 2 * plan.held_out_subsets * plan.held_out_queries
    return tune.times(subsets * plan.size).plus(ask.times(asked))


def label_rates(wish: PlanRequest, measures: Measures) -> tuple[Predicted, Predicted]:
    """Seconds of fine-tuning on one example, with all epochs, and of one query's loss."""
    trial = measures.labels
    assert trial.others is not None
    tune, ask = (one_example(each, trial.lengths, wish.examples) for each in (trial.repeats, trial.others))
    return tune, ask


def training_seconds(wish: PlanRequest, measures: Measures, encode: Predicted) -> Predicted:
    """Of steps as measured, and of encoding all texts once, stopping and judging as `airrep adapt` reckons them."""
    plan = wish.learning
    layers = measures.training.layers
    costs = Costs(fine_tune=1.0, evaluate=1.0, encode=max(encode.value, 1e-9), layers=max(1, layers))
    fixed = plan.fixed_seconds(costs)
    share = encode.half / max(encode.value, 1e-9)
    return step_text_seconds(wish, measures).times(plan.steps * plan.step_texts).plus(Predicted(fixed, fixed * share))


def step_text_seconds(wish: PlanRequest, measures: Measures) -> Predicted:
    """Of one text in a training step."""
    return one_example(measures.training.repeats, measures.training.lengths, wish.examples)


def _facts(wish: PlanRequest, measures: Measures) -> dict[str, Any]:
    """What was measured, and what was assumed."""
    plan, trial = wish.learning, measures.labels
    tune, ask = label_rates(wish, measures)
    tokens = {name: mean_of(one.lengths, wish.examples).value for name, one in measures.methods.items()}
    labels = label_seconds(wish, measures)
    return {
        "learning": plan.model_dump(mode="json"),
        "label_wall_seconds": labels.value / wish.workers,
        "fine_tune_seconds_per_example": tune.value,
        "fine_tune_interval": list(tune.interval),
        "query_seconds": ask.value,
        "query_interval": list(ask.interval),
        "label_memory_bytes": trial.memory,
        "training_memory_bytes": measures.training.memory,
        "tokens_per_example": tokens,
        "repeats": {name: len(one.repeats.seconds) for name, one in measures.methods.items()},
        "measured_examples": {name: sum(one.repeats.examples) for name, one in measures.methods.items()},
        "unreadable": {name: one.refused for name, one in measures.methods.items() if one.refused},
        "devices": sorted({one.device for one in (*measures.methods.values(), trial, measures.training)}),
        "threads": 1,
        "settings": {name: str(value) for name, value in wish.settings.items()},
        "memory": "peak resident memory of a process of its own for each, measured; the corpus's texts and the "
        "features of a shard are added",
    }
