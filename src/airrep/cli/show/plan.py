"""Print a plan: methods, crossovers, and checks against real runs."""

from airrep.cli.show.console import print_table, printable, say
from airrep.planning.plan import Crossover, Interval, MethodPlan, Plan
from airrep.reports.tables import PLAIN, Table, bytes_text, seconds_text

SECONDS = "Seconds are those of one core (of the GPU where there is one)"


def print_plan(plan: Plan) -> None:
    """Print what each method needs, the crossovers, and how far such predictions were from real runs."""
    lm = "" if plan.lm is None else f", LM {printable(plan.lm)} of {plan.lm_parameters:,} parameters"
    say(f"{plan.corpus:,} examples{lm}; {plan.machine}")
    columns = ("method", "before the first", "each example", "95 % interval", "in all", "memory", "index", "store")
    print_table(Table.of_texts(columns, (_row(method) for method in plan.methods)))
    if "learning" in plan.facts:
        _say_learning(plan)
    else:
        say(f"{plan.facts['assumed']}. {SECONDS}")
    for found in plan.crossovers:
        say(f"against {found.method}: {crossover_words(found)}")
    if plan.last_real:
        _print_checks(plan)


def _row(method: MethodPlan) -> tuple[str, ...]:
    return (
        method.name,
        seconds_text(method.fixed_seconds),
        seconds_text(method.seconds_per_example),
        _between(method.interval),
        seconds_text(method.corpus_seconds or 0.0),
        bytes_text(method.memory_bytes or 0.0),
        bytes_text(method.disk_bytes or 0.0),
        bytes_text(method.store_bytes or 0.0),
    )


def _between(interval: Interval | None) -> str:
    return PLAIN.interval(interval, seconds_text)


def _say_learning(plan: Plan) -> None:
    learning, parts = plan.facts["learning"], plan.methods[0].fixed_parts
    workers = f"{plan.workers} worker{'s share' if plan.workers != 1 else ' takes'}"
    say(
        f"labels: {learning['subsets']:,} fine-tunes on {learning['size']:,} examples to learn from, twice "
        f"{learning['held_out_subsets']:,} to stop and judge by, {seconds_text(parts['labels'])}; training: "
        f"{learning['steps']:,} steps, {seconds_text(parts['training'])}. {SECONDS}; "
        f"{workers} labels and encoding: {seconds_text(plan.facts['label_wall_seconds'])} for labels by the clock"
    )


def crossover_words(found: Crossover) -> str:
    """A crossover as a sentence."""
    if found.examples is None:
        return f"training the encoder never pays by time: {found.why}"
    if found.examples == 0 and found.interval is not None:
        most = f" (95 %: from at most {found.interval[1]:,.0f} on)" if found.interval[1] else ""
        return f"the encoder is ahead from the first example{most}: {found.why}"
    ends = PLAIN.interval(found.interval, "{:,.0f}".format) or f"no interval: {found.why}"
    return f"training the encoder pays from {found.examples:,.0f} examples on ({ends})"


def _print_checks(plan: Plan) -> None:
    rows = []
    for one in plan.last_real:
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        memory = "" if one.memory_bytes is None else "{}, was {}".format(*map(bytes_text, one.memory_bytes))
        times = (
            seconds_text(one.predicted_seconds),
            _between(one.predicted_interval),
            seconds_text(one.measured_seconds),
        )
        rows.append((one.what, *times, ratio, memory, "; ".join(one.conditions)))
    print_table(Table.of_texts(("real run", "predicted", "95 % interval", "measured", "ratio", "memory", "but"), rows))
