"""Predict from measured rates the time, memory and disk that a corpus takes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from airrep.planning.budget import Costs
from airrep.planning.plan import KIND, MethodPlan, Plan, Predicted, PredictionCheck, crossover, line, mean_of, rate
from airrep.planning.plan_request import ENCODER, Measures, PlanRequest
from airrep.planning.trials import MethodTrial, Repeats
from airrep.runtime.metering import describe_machine

SHARD_ROWS = 4096
"""Examples whose features are held at once."""
HELD_FEATURES, HELD_TEXTS = 3, 2
"""Copies of a shard's features, and of the corpus's texts, that are in memory at once at most."""
NO_LM = "no LM: nothing is fine-tuned, so the encoder is taken as it is, without labels and training of its own"


def make_plan(
    request: PlanRequest, measures: Measures, command: str = "", checks: Sequence[PredictionCheck] = ()
) -> Plan:
    """Predict from what was measured; *command* asked for it, *checks* compare with real runs."""
    encoder, parts = encoder_cost(request, measures)
    costs = {name: method_cost(request, measures.methods[name]) for name in request.methods}
    return Plan(
        measure=KIND,
        command=command,
        machine=describe_machine(),
        corpus=request.examples,
        lm=None if request.lm is None else lm_name(request.lm.lm),
        lm_parameters=measures.parameters,
        workers=request.workers,
        methods=(
            _method_plan(request, ENCODER, encoder, parts, measures),
            *(
                _method_plan(request, name, costs[name], {"fit": costs[name].fixed.value}, measures)
                for name in request.methods
            ),
        ),
        crossovers=tuple(
            crossover(name, encoder.fixed.plus(cost.fixed.times(-1.0)), cost.each, encoder.each)
            for name, cost in costs.items()
            if measures.methods[name].parameters is not None  # the others read no LM, so nothing is to be saved
        ),
        last_real=tuple(checks),
        facts=_facts(request, measures),
    )


def _method_plan(
    request: PlanRequest, name: str, cost: "MethodCost", parts: dict[str, float], measures: Measures
) -> MethodPlan:
    trial, examples = measures.methods[name], request.examples
    seconds, memory = cost.fixed.plus(cost.each.times(examples)), planned_memory(request, trial)
    if name == ENCODER and request.lm is not None:
        memory = max(memory, *(trial.memory for trial in measures.learning))
    return MethodPlan(
        name=name,
        fixed_seconds=cost.fixed.value,
        fixed_interval=cost.fixed.interval,
        fixed_parts=parts,
        seconds_per_example=cost.each.value,
        interval=cost.each.interval,
        seconds=seconds.value,
        seconds_interval=seconds.interval,
        encoding_wall_seconds=cost.each.times(examples / request.workers).value,
        bytes_per_example=trial.bytes_per_example,
        disk_bytes=trial.bytes_per_example * examples,
        store_bytes_per_example=trial.store_bytes_per_example,
        store_bytes=trial.store_bytes_per_example * examples,
        memory_bytes=memory,
    )


def lm_name(name: str) -> str:
    """A Hub id, or the last part of a folder's path."""
    return Path(name).name if Path(name).is_absolute() else name


def one_example(repeats: Repeats, lengths: Sequence[int], examples: int) -> Predicted:
    """Seconds of one example of a corpus: seconds of a token by the mean length."""
    return rate(repeats.seconds, repeats.tokens).by(mean_of(lengths, examples))


class MethodCost(NamedTuple):
    """Seconds of a method."""

    fixed: Predicted
    """Before the first example: labels and training, or learning from a sample."""
    each: Predicted
    """For one example."""


def method_cost(request: PlanRequest, trial: MethodTrial) -> MethodCost:
    """What a method costs that is not trained."""
    start, by_token = line(*trial.fits)
    slope = by_token * mean_of(trial.lengths, request.examples).value
    each = slope if trial.sample is None else trial.check_seconds
    learnt = 0.0 if trial.sample is None else max(0.0, slope - each) * min(trial.sample, request.examples)
    encoding = one_example(trial.repeats, trial.lengths, request.examples)
    return MethodCost(Predicted(start + learnt), Predicted(encoding.value + each, encoding.half))


def planned_memory(request: PlanRequest, trial: MethodTrial) -> float:
    """Peak of a process: what was measured, the corpus's texts, and a shard's features."""
    texts = sum(len(f"{example.prompt}{example.response}".encode()) for example in request.texts[:1000])
    corpus = HELD_TEXTS * request.examples * texts / min(1000, len(request.texts))
    return trial.memory + corpus + HELD_FEATURES * trial.row_bytes * min(SHARD_ROWS, request.examples)


def encoder_cost(request: PlanRequest, measures: Measures) -> tuple[MethodCost, dict[str, float]]:
    """What the encoder costs, trained where there is an LM, and the parts of what it costs before the first example."""
    plain = method_cost(request, measures.methods[ENCODER])
    if request.lm is None:
        return plain, {"fit": plain.fixed.value}
    labels, training = label_seconds(request, measures), training_seconds(request, measures, plain.each)
    parts = {"labels": labels.value, "training": training.value, "fit": plain.fixed.value}
    return MethodCost(labels.plus(training, plain.fixed), plain.each), parts


def label_seconds(request: PlanRequest, measures: Measures) -> Predicted:
    """Of all fine-tunes: to learn from, to stop and to judge by."""
    plan = request.learning
    tune, ask = label_rates(request, measures)
    subsets = plan.subsets + 2 * plan.held_out_subsets
    asked = plan.subsets * plan.queries + 2 * plan.held_out_subsets * plan.held_out_queries
    return tune.times(subsets * plan.size).plus(ask.times(asked))


def label_rates(request: PlanRequest, measures: Measures) -> tuple[Predicted, Predicted]:
    """Seconds of fine-tuning on one example, with all epochs, and of one query's loss."""
    trial, _ = measures.learning
    tune, ask = (one_example(each, trial.lengths, request.examples) for each in (trial.repeats, trial.losses))
    return tune, ask


def training_seconds(request: PlanRequest, measures: Measures, encode: Predicted) -> Predicted:
    """Of steps as measured, and of encoding all texts once, stopping and judging as `airrep adapt` reckons them."""
    plan = request.learning
    layers = measures.learning[1].layers
    costs = Costs(fine_tune=1.0, evaluate=1.0, encode=max(encode.value, 1e-9), layers=max(1, layers))
    fixed = plan.fixed_seconds(costs)
    share = encode.half / max(encode.value, 1e-9)
    return (
        step_text_seconds(request, measures).times(plan.steps * plan.step_texts).plus(Predicted(fixed, fixed * share))
    )


def step_text_seconds(request: PlanRequest, measures: Measures) -> Predicted:
    """Of one text in a training step."""
    _, trial = measures.learning
    return one_example(trial.repeats, trial.lengths, request.examples)


def _facts(request: PlanRequest, measures: Measures) -> dict[str, Any]:
    """What was measured, and what was assumed."""
    tokens = {name: mean_of(one.lengths, request.examples).value for name, one in measures.methods.items()}
    trials = (*measures.methods.values(), *(() if request.lm is None else measures.learning))
    return {
        **({"assumed": NO_LM} if request.lm is None else _learning_facts(request, measures)),
        "tokens_per_example": tokens,
        "repeats": {name: len(one.repeats.seconds) for name, one in measures.methods.items()},
        "measured_examples": {name: sum(one.repeats.examples) for name, one in measures.methods.items()},
        "unreadable": {name: one.refused for name, one in measures.methods.items() if one.refused},
        "devices": sorted({one.device for one in trials}),
        "threads": 1,
        "settings": {name: str(value) for name, value in request.settings.items()},
        "memory": "peak resident memory of a process of its own for each, measured; the corpus's texts and the "
        "features of a shard are added",
    }


def _learning_facts(request: PlanRequest, measures: Measures) -> dict[str, Any]:
    """Facts on labels and training."""
    trial, training = measures.learning
    tune, ask = label_rates(request, measures)
    return {
        "learning": request.learning.model_dump(mode="json"),
        "label_wall_seconds": label_seconds(request, measures).value / request.workers,
        "fine_tune_seconds_per_example": tune.value,
        "fine_tune_interval": list(tune.interval),
        "query_seconds": ask.value,
        "query_interval": list(ask.interval),
        "label_memory_bytes": trial.memory,
        "training_memory_bytes": training.memory,
    }
