"""Commands that judge methods by labels, and compare what was judged."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep.cli import options
from airrep.cli.flags import SettingsFlags
from airrep.cli.judging import INDEXES, EvaluationOptions, IndexesArgument, open_named, parse_named
from airrep.cli.options import shared_options
from airrep.cli.running.once import OneLineGroup
from airrep.errors import ConfigError

if TYPE_CHECKING:
    from airrep.evaluation.lds import LdsStudy
    from airrep.index.index import Index
    from airrep.labels.instance import LabelledInstance


RESAMPLES = 1000
MOVED_HELP = "A setting of one index that is another now, as NAME:key=value: NAME:recipe=kind, say."

DataOption = Annotated[
    list[str] | None,
    f"The data of the labels; may be repeated. Not for folders in the airrep-test layout. {options.DATA_HELP}",
]
LabelsOption = Annotated[
    list[str] | None,
    f"Labels to judge by; may be repeated. {options.CHOICE_HELP} Or a folder in the airrep-test layout.",
]
MovedOption = Annotated[list[str] | None, typer.Option("--set", help=MOVED_HELP)]
QueriesOption = Annotated[str, typer.Option(metavar="DATA", help=f"Queries. {options.DATA_HELP}")]
ResamplesOption = Annotated[int, typer.Option(min=50, help="Bootstrap draws behind each interval.")]

app = typer.Typer()
evaluate = typer.Typer(cls=OneLineGroup, no_args_is_help=True, help="Judge indexes by labels.")
app.add_typer(evaluate, name="evaluate")


@evaluate.command("classify")
@shared_options
def classify_command(
    indexes: IndexesArgument,
    queries: QueriesOption,
    reading: options.ReadingOptions,
    judging: EvaluationOptions,
    by: Annotated[str, "Field that holds the class: label, source or a metadata field."] = "label",
    vote: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Also the class that most of the top K have; may be repeated; 10 if not given."),
    ] = None,
    skip_unlabelled: Annotated[bool, "Leave out queries without class, counted."] = False,
    where: options.WhereOption = None,
    moved: MovedOption = None,
) -> None:
    """How often the top training example has the query's label (identical-class test).

    A query never finds itself: training examples with its own texts are passed over. All indexes hold the same data.
    """
    from airrep.cli.show.console import Meter
    from airrep.cli.show.evaluations import print_classification
    from airrep.evaluation.classify import Classification, ClassifySettings

    values = {"by": by, "where": where, "skip_unlabelled": skip_unlabelled}
    settings = ClassifySettings.of({**values, **({"votes": tuple(vote)} if vote else {})})
    asked = Classification(open_named(indexes, moved), reading.read(queries), settings)
    with Meter("ranking for queries") as meter:
        judging.deliver(asked.request, lambda: asked.run(meter), print_classification)


SelectionOptions = Annotated[
    Mapping[str, Any],
    SettingsFlags(
        "airrep.evaluation.contest:SelectSettings",
        ("by", "seeds", "random", "full", "none", "where", "max_new_tokens", "seed"),
        mode="own",
    ),
]


@evaluate.command("select")
@shared_options
def evaluate_select_command(
    indexes: IndexesArgument,
    queries: QueriesOption,
    lm: Annotated[str, "Target LM: a folder or a Hub id."],
    count: Annotated[int, typer.Option(min=1, help="Training examples selected for each task; the paper takes 1000.")],
    reading: options.ReadingOptions,
    judging: EvaluationOptions,
    selecting: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Other queries of the same tasks to select by, so that none is tested on."),
    ] = None,
    *,
    selection: SelectionOptions,
    running: options.EngineOptions,
    retries: options.RetriesOption = 2,
    partial: Annotated[bool, "Finish without fine-tunes that failed."] = False,
    configuring: Annotated[
        options.TuningOptions,
        {"settings": "A setting of the fine-tuning or the LM, as key=value, such as learning_rate=1e-4."},
    ],
    moved: Annotated[list[str] | None, typer.Option("--index-set", help=MOVED_HELP)] = None,
) -> None:
    """Select examples for each task, fine-tune the LM on them, and measure its answers: unigram F1.

    --training takes the settings of the fine-tuning from your own training. With --out, run it again after an
    interruption: it goes on with what is missing.
    """
    from airrep.cli.show.console import Meter
    from airrep.cli.show.evaluations import print_selection
    from airrep.cli.show.learning import TaskMeter
    from airrep.evaluation.contest import Contest, SelectSettings
    from airrep.evaluation.select import DataSelection

    chosen = SelectSettings.of({"count": count, **selection})
    contest = Contest(open_named(indexes, moved), reading.read(queries), reading.read_if(selecting), chosen)
    asked = DataSelection(contest, *configuring.of_lm(lm, reading=reading), running.make())
    often: dict[str, Any] = {"retries": retries, "partial": partial, "replace": judging.replace}
    with Meter("selecting") as meter:
        judging.deliver(
            asked.request,
            lambda: asked.run(judging.run, **often, progress=meter, on_task=TaskMeter()),
            print_selection,
            partial=partial,
        )


@dataclass(frozen=True)
class _Removing:
    """Options of labels that leave examples out."""

    removals: Annotated[
        bool,
        "LABELS leave examples out (`airrep sample --removals K`): judge how well scores tell what that does.",
    ] = False
    what_if: Annotated[
        bool,
        "Judge labels of --removals, predicted by the change of the whole pool's group score, as by `airrep what-if`.",
    ] = False

    def study(self) -> "type[LdsStudy]":
        """The study that is asked for."""
        from airrep.evaluation.lds import LdsStudy
        from airrep.evaluation.loo import LooStudy, WhatIfStudy

        if self.what_if:
            return WhatIfStudy
        return LooStudy if self.removals else LdsStudy


@evaluate.command("lds")
@shared_options
def lds_command(
    reading: options.ReadingOptions,
    judging: EvaluationOptions,
    removing: _Removing,
    indexes: Annotated[list[str] | None, INDEXES] = None,
    labels: LabelsOption = None,
    data: DataOption = None,
    pool: options.PoolOption = None,
    tune: Annotated[list[str] | None, "Other labels, on which each attention pool gets its best temperature."] = None,
    settings: MovedOption = None,
    resamples: ResamplesOption = RESAMPLES,
    partial: options.PartialOption = False,
    why: Annotated[
        bool,
        "Show why an LDS is low: findings on the labels, and on each INDEX if given.",
    ] = False,
) -> None:
    """How well indexes rank labelled subsets: LDS with intervals, and each one's paired difference to the first.

    An index may be of any data that contains the train pools. For a fair comparison give --tune, with labels that
    are not among --labels. With --removals the value is the rank correlation of scores and effects over removals;
    labels of 2 or more seeds also tell the effects' signal-to-noise ratio and the noise ceiling. With --why each
    finding has its number, a verdict and a paragraph of advice in docs/diagnosis.md.
    """
    from airrep.cli.show.evaluations import print_correlations

    kind = removing.study()
    _refuse_beside(why, removing, judging, tune, resamples)
    if not (indexes or why):
        raise ConfigError("evaluate lds: names no index; expected INDEX or NAME=INDEX, or --why. Name one.")
    labels = _given(labels, indexes or (), kind.measure)
    opened, named = open_named(indexes or (), settings), [*labels, *(tune or ())]
    judged, tuned = _gather(labels, tune or (), data=data, reading=reading, partial=partial, named=named)
    if why:
        _tell_why(labels, judged, [index for _, index in opened], judging, *options.typed_pool(pool))
        return
    asked = kind(opened, judged, *options.typed_pool(pool), tune=tuned, resamples=resamples)
    judging.deliver(asked.request, asked.run, print_correlations)


def _refuse_beside(
    why: bool, removing: _Removing, judging: EvaluationOptions, tune: list[str] | None, resamples: int
) -> None:
    """Refuse options that another one would leave without effect."""
    removals = removing.removals or removing.what_if
    given = {
        "--removals or --what-if": why and removals,
        "--tune": (why or removals) and bool(tune),
        "--tag": why and bool(judging.tag),
        "--resamples": why and resamples != RESAMPLES,
    }
    found = next((name for name, refused in given.items() if refused), None)
    if found is not None:
        beside = "--why" if why else "--removals"
        raise ConfigError(f"evaluate lds: {found} has no effect beside {beside}; expected one of them. Leave one out.")


def _tell_why(
    labels: Sequence[str],
    instances: "list[LabelledInstance]",
    indexes: "list[Index]",
    judging: EvaluationOptions,
    *pool: Any,
) -> None:
    """Show a diagnosis; one of the same inputs that is there already is shown again."""
    from airrep.cli.show.evaluations import print_diagnosis
    from airrep.evaluation import diagnosis as study
    from airrep.evaluation.result import command_line

    def make() -> study.Diagnosis:
        seconds = study.seconds_of_fine_tunes([choice.partition("#")[0] for choice in labels])
        return study.diagnose(instances, indexes, *pool, seconds=seconds, command=command_line(sys.argv[1:]))

    options.OutputOptions(judging.as_json, judging.run, judging.replace).find_or_make(
        lambda run: study.Diagnosis.find(run, study.diagnosis_request(instances, indexes, *pool)),
        make,
        print_diagnosis,
    )


def _given(labels: list[str] | None, indexes: Sequence[str], measure: str) -> list[str]:
    """The labels that are named; where none are, the way to them is told."""
    if labels:
        return labels
    index = parse_named(indexes[0])[1] if indexes else "INDEX"
    judge = "judges by them in one step" if measure == "lds" else "asks how well random subsets are ranked, without any"
    raise ConfigError(
        "evaluate: no labels are named; expected losses after fine-tunes: --labels LABELS. They come of `airrep sample "
        f"DATA --out SUBSETS` and `airrep label`; `airrep judge {index} --lm MODEL --queries QUERIES` {judge}."
    )


def _gather(
    *parts: Sequence[str],
    data: Sequence[str] | None,
    reading: options.ReadingOptions,
    partial: bool,
    named: Sequence[str],
) -> "Iterator[list[LabelledInstance]]":
    """Labelled instances of each list of choices; the data are read once."""
    from airrep.labels.gather import gather

    corpora = [reading.read(path) for path in data or ()]
    for part in parts:
        yield gather(part, corpora, partial=partial, beside=named, read=reading.read)


@app.command("compare")
@shared_options
def compare_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="What `airrep evaluate ... --out` wrote.")],
    to: Annotated[str | None, "Compare with the row of this name alone."] = None,
    resamples: Annotated[
        int | None, typer.Option(min=50, help="Bootstrap draws of lds and loo; 1,000 if not given.")
    ] = None,
    *,
    delivery: Annotated[options.OutputOptions, {"run": "Also write the comparison here."}],
) -> None:
    """Test rows of evaluations against each other, pair by pair, over the same queries and subsets.

    All runs must be of one measure, judged on the same queries and labels. p-values are two-sided; the adjusted ones
    (Holm) hold for all pairs shown together.
    """
    from airrep.cli.show.evaluations import print_comparison
    from airrep.evaluation.comparison import Comparison, compare_evaluations, comparison_request
    from airrep.evaluation.result import Evaluation, command_line

    named = [(str(run), Evaluation.read(run)) for run in runs]
    delivery.find_or_make(
        lambda run: Comparison.find(run, comparison_request(named, to, resamples)),
        lambda: compare_evaluations(named, to, resamples=resamples, command=command_line(sys.argv[1:])),
        print_comparison,
        "; --replace makes it again",
    )
