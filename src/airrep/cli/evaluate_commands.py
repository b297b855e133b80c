"""Commands that judge methods by labels, or learn from labels alone."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep.cli import options
from airrep.cli.flags import SettingsFlags
from airrep.cli.judging import EvaluationOptions, IndexesArgument, open_named, parse_named
from airrep.cli.options import note, print_json, shared_options
from airrep.errors import ConfigError

if TYPE_CHECKING:
    from airrep.labels.instance import LabelledInstance


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
evaluate = typer.Typer(no_args_is_help=True, help="Judge indexes by labels.")
diagnosis = typer.Typer()
app.add_typer(evaluate, name="evaluate")
app.add_typer(diagnosis)  # its one command would come before the group if it were the app's own


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
        "airrep.evaluation.select.competitors:SelectSettings",
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
    from airrep.evaluation.select.competitors import Contest, SelectSettings
    from airrep.evaluation.select.select import DataSelection

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


@evaluate.command("lds")
@shared_options
def lds_command(
    indexes: IndexesArgument,
    reading: options.ReadingOptions,
    judging: EvaluationOptions,
    labels: LabelsOption = None,
    data: DataOption = None,
    pool: options.PoolOption = None,
    tune: Annotated[list[str] | None, "Other labels, on which each attention pool gets its best temperature."] = None,
    settings: MovedOption = None,
    resamples: ResamplesOption = 1000,
    partial: options.PartialOption = False,
) -> None:
    """How well indexes rank labelled subsets: LDS with intervals, and each one's paired difference to the first.

    An index may be of any data that contains the train pools. For a fair comparison give --tune, with labels that
    are not among --labels.
    """
    from airrep.cli.show.evaluations import print_correlations
    from airrep.evaluation.lds import LdsStudy

    labels = _given(labels, indexes, "judges by them in one step")
    opened, named = open_named(indexes, settings), [*labels, *(tune or ())]
    judged, tuned = _gather(labels, tune or (), data=data, reading=reading, partial=partial, named=named)
    asked = LdsStudy(opened, judged, *options.typed_pool(pool), tune=tuned, resamples=resamples)
    judging.deliver(asked.request, asked.run, print_correlations)


@evaluate.command("loo")
@shared_options
def loo_command(
    indexes: IndexesArgument,
    reading: options.ReadingOptions,
    judging: EvaluationOptions,
    labels: LabelsOption = None,
    data: DataOption = None,
    pool: Annotated[str | None, "How scores of examples removed together become one: sum if not given."] = None,
    what_if: Annotated[
        bool,
        "Predict by the change of the whole pool's group score, as `airrep what-if` does, by each method's own pool.",
    ] = False,
    settings: MovedOption = None,
    resamples: ResamplesOption = 1000,
    partial: options.PartialOption = False,
) -> None:
    """How well indexes tell what leaving examples out does: rank correlation of scores and effects over removals.

    LABELS come from `airrep sample --removals K`, or --removals-by source, and `airrep label --seeds R`; with R of 2
    or more the effects' signal-to-noise ratio and the noise ceiling are shown beside.
    """
    from airrep.cli.show.evaluations import print_correlations
    from airrep.evaluation.loo import LooStudy, WhatIfStudy

    labels = _given(labels, indexes, "asks how well random subsets are ranked, without any")
    opened = open_named(indexes, settings)
    (judged,) = _gather(labels, data=data, reading=reading, partial=partial, named=labels)
    study = WhatIfStudy if what_if else LooStudy
    asked = study(opened, judged, *options.typed_pool(pool), resamples=resamples)
    judging.deliver(asked.request, asked.run, print_correlations)


def _given(labels: list[str] | None, indexes: Sequence[str], judge: str) -> list[str]:
    """The labels that are named; where none are, the way to them is told."""
    if labels:
        return labels
    index = parse_named(indexes[0])[1]
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
    from airrep.evaluation.comparison import compare_evaluations, comparison_request, find_comparison
    from airrep.evaluation.result import command_line, read_evaluation

    named = [(str(run), read_evaluation(run)) for run in runs]
    delivery.find_or_make(
        lambda run: find_comparison(run, comparison_request(named, to, resamples)),
        lambda: compare_evaluations(named, to, resamples=resamples, command=command_line(sys.argv[1:])),
        print_comparison,
        "; --replace makes it again",
    )


@app.command("datamodels")
@shared_options
def datamodels_command(
    labels: Annotated[str, typer.Argument(metavar="LABELS#i", help=f"One instance. {options.CHOICE_HELP}")],
    out: Annotated[Path, "Directory of the weights."],
    reading: options.ReadingOptions,
    data: DataOption = None,
    partial: options.PartialOption = False,
    as_json: options.JsonOption = False,
    *,
    configuring: Annotated[options.ConfigOptions, {"settings": "One setting, as key=value, such as penalty=lasso."}],
    replace: options.ReplaceOption = False,
) -> None:
    """Regress each query's losses on who was in the subset. The result knows these queries and examples alone."""
    from airrep.cli.show.evaluations import print_datamodels
    from airrep.labels.gather import label_lineage
    from airrep.training.linear.datamodels import RegressionSettings, fit_datamodels, the_only

    chosen = RegressionSettings.of(configuring.values())
    (judged,) = _gather([labels], data=data, reading=reading, partial=partial, named=[labels])
    instance = the_only(judged, labels)
    made = fit_datamodels(instance, out, chosen, lineage=label_lineage([labels]), replace=replace)
    if as_json:
        print_json(dict(made.report))
    else:
        print_datamodels(made)
    note(f"{out}: next: airrep index {out / 'train.jsonl'} --method datamodels --set weights={out} --out INDEX")


@diagnosis.command("diagnose")
@shared_options
def diagnose_command(
    labels: Annotated[list[str], typer.Argument(metavar="LABELS...", help=options.LABELS_HELP)],
    reading: options.ReadingOptions,
    data: options.LabelDataOption = None,
    index: Annotated[
        list[str] | None,
        typer.Option(metavar="INDEX", help="An index, or NAME=INDEX, whose scores are looked at too; may be repeated."),
    ] = None,
    settings: MovedOption = None,
    pool: options.PoolOption = None,
    partial: options.PartialOption = False,
    *,
    delivery: Annotated[options.OutputOptions, {"run": "Also write the findings here."}],
) -> None:
    """Why an LDS is low: spread, noise and overlap of the labels, and what an index's scores make of them.

    Each finding has its number, a verdict and a paragraph of advice in docs/diagnosis.md.
    """
    from airrep.cli.show.evaluations import print_diagnosis
    from airrep.evaluation.diagnosis import diagnosis as study
    from airrep.evaluation.result import command_line

    (instances,) = _gather(labels, data=data, reading=reading, partial=partial, named=labels)
    indexes, chosen = [opened for _, opened in open_named(index or (), settings)], options.typed_pool(pool)

    def make() -> study.Diagnosis:
        seconds = study.seconds_of_fine_tunes([choice.partition("#")[0] for choice in labels])
        command = command_line(sys.argv[1:])
        return study.diagnose(instances, indexes, *chosen, seconds=seconds, command=command)

    delivery.find_or_make(
        lambda run: study.find_diagnosis(run, study.diagnosis_request(instances, indexes, *chosen)),
        make,
        print_diagnosis,
    )
