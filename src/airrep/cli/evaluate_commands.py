"""Commands that judge methods by labels, or learn from labels alone."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airrep.cli.judging import IndexesArgument, JsonOption, Judging, open_named
from airrep.cli.options import (
    DATA_HELP,
    LABELS_HELP,
    AddressOption,
    EngineOption,
    GpusOption,
    PoolOption,
    Reading,
    ReplaceOption,
    TemperatureOption,
    WhereOption,
    WorkersOption,
    make_engine,
    note,
    open_moved_index,
    print_json,
    shared_options,
)

if TYPE_CHECKING:
    from airrep.labels.instance import LabelledInstance


CHOICE_HELP = "DIR#0,3-5 takes some instances of a directory that `airrep label` wrote."


MEMBER_HELP = "METHOD, or METHOD:key=value,key=value, or METHOD:settings.yaml; may be repeated."


DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help=f"The data of the labels; may be repeated. Not for folders in the airrep-test layout. {DATA_HELP}",
    ),
]


LabelsOption = Annotated[
    list[str],
    typer.Option(
        "--labels", help=f"Labels to judge by; may be repeated. {CHOICE_HELP} Or a folder in the airrep-test layout."
    ),
]


MOVED_HELP = "A setting of one index that is another now, as NAME:key=value: a moved model, say."
MovedOption = Annotated[list[str] | None, typer.Option("--set", help=MOVED_HELP)]


ResamplesOption = Annotated[int, typer.Option(min=50, help="Bootstrap draws behind each interval.")]


PartialOption = Annotated[bool, typer.Option("--partial", help="Accept unfinished labels.")]


app = typer.Typer()


evaluate = typer.Typer(no_args_is_help=True, help="Judge indexes by labels.")
app.add_typer(evaluate, name="evaluate")


QueriesOption = Annotated[str, typer.Option("--queries", metavar="DATA", help=f"Queries. {DATA_HELP}")]


@evaluate.command("classify")
@shared_options
def classify_command(
    indexes: IndexesArgument,
    queries: QueriesOption,
    reading: Reading,
    judging: Judging,
    by: Annotated[str, typer.Option(help="Field that holds the class: label, source or a metadata field.")] = "label",
    vote: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Also the class that most of the top K have; may be repeated; 10 if not given."),
    ] = None,
    skip_unlabelled: Annotated[
        bool, typer.Option("--skip-unlabelled", help="Leave out queries without class, counted.")
    ] = False,
    where: WhereOption = None,
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


@evaluate.command("select")
@shared_options
def evaluate_select_command(
    indexes: IndexesArgument,
    queries: QueriesOption,
    lm: Annotated[str, typer.Option("--lm", help="Target LM: a folder or a Hub id.")],
    count: Annotated[int, typer.Option(min=1, help="Training examples selected for each task; the paper takes 1000.")],
    reading: Reading,
    judging: Judging,
    selecting: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Other queries of the same tasks to select by, so that none is tested on."),
    ] = None,
    by: Annotated[str, typer.Option(help="Field that holds the task: label, source or a metadata field.")] = "label",
    seeds: Annotated[int, typer.Option(min=1, help="Fine-tunes of each selection, averaged.")] = 1,
    random: Annotated[bool, typer.Option("--random/--no-random", help="Also examples at random.")] = True,
    full: Annotated[bool, typer.Option("--full/--no-full", help="Also all training examples.")] = False,
    none: Annotated[bool, typer.Option("--none/--no-none", help="Also the LM as it is.")] = True,
    where: WhereOption = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 64,
    seed: Annotated[int, typer.Option(help="Of random examples and fine-tunes.")] = 0,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    gpus: GpusOption = 0,
    retries: Annotated[int, typer.Option(min=0, help="How often a failed fine-tune is tried again.")] = 2,
    partial: Annotated[bool, typer.Option("--partial", help="Finish without fine-tunes that failed.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the fine-tuning or the LM, as key=value, such as learning_rate=1e-4."),
    ] = None,
    moved: Annotated[list[str] | None, typer.Option("--index-set", help=MOVED_HELP)] = None,
) -> None:
    """Select examples for each task, fine-tune the LM on them, and measure its answers: unigram F1.

    With --out, run it again after an interruption: it goes on with what is missing.
    """
    from airrep.cli.show.console import Meter
    from airrep.cli.show.evaluations import print_selection
    from airrep.cli.show.learning import TaskMeter
    from airrep.evaluation.select.select import DataSelection
    from airrep.evaluation.select.tasks import SelectSettings
    from airrep.lm.settings import FineTuneSettings, LmSettings, split_lm_settings
    from airrep.runtime.settings import read_settings

    of_lm, of_tuning = split_lm_settings(read_settings(None, settings or ()))
    values = {"count": count, "by": by, "seeds": seeds, "random": random, "full": full, "none": none}
    chosen = SelectSettings.of({**values, "where": where, "max_new_tokens": max_new_tokens, "seed": seed})
    asked = DataSelection(
        open_named(indexes, moved),
        reading.read(queries),
        LmSettings.of({**of_lm, "lm": lm}),
        chosen,
        FineTuneSettings.of(of_tuning),
        selecting=None if selecting is None else reading.read(selecting),
        engine=make_engine(engine, workers, address, gpus),
    )
    with Meter("selecting") as meter:
        judging.deliver(
            asked.request,
            lambda: asked.run(
                judging.run,
                retries=retries,
                partial=partial,
                replace=judging.replace,
                progress=meter,
                on_task=TaskMeter(),
            ),
            print_selection,
            partial=partial,
        )


@evaluate.command("lds")
@shared_options
def lds_command(
    indexes: IndexesArgument,
    labels: LabelsOption,
    reading: Reading,
    judging: Judging,
    data: DataOption = None,
    pool: PoolOption = None,
    temperature: TemperatureOption = 1.0,
    tune: Annotated[
        list[str] | None,
        typer.Option("--tune", help="Other labels, on which each attention pool gets its best temperature."),
    ] = None,
    settings: MovedOption = None,
    resamples: ResamplesOption = 1000,
    partial: PartialOption = False,
) -> None:
    """How well indexes rank labelled subsets: LDS with intervals, and each one's paired difference to the first.

    An index may be of any data that contains the train pools. For a fair comparison give --tune, with labels that
    are not among --labels.
    """
    from airrep.cli.show.evaluations import print_correlations
    from airrep.evaluation.lds import LdsStudy

    opened, named = open_named(indexes, settings), [*labels, *(tune or ())]
    judged, tuned = _gather(labels, tune or (), data=data, reading=reading, partial=partial, named=named)
    asked = LdsStudy(opened, judged, pool, temperature, tune=tuned, resamples=resamples)
    judging.deliver(asked.request, asked.run, print_correlations)


@evaluate.command("loo")
@shared_options
def loo_command(
    indexes: IndexesArgument,
    labels: LabelsOption,
    reading: Reading,
    judging: Judging,
    data: DataOption = None,
    pool: Annotated[
        str | None,
        typer.Option("--pool", help="How scores of examples removed together become one: sum if not given."),
    ] = None,
    temperature: TemperatureOption = 1.0,
    settings: MovedOption = None,
    resamples: ResamplesOption = 1000,
    partial: PartialOption = False,
) -> None:
    """How well indexes tell what leaving examples out does: rank correlation of scores and effects over removals.

    LABELS come from `airrep sample --removals K` and `airrep label --seeds R`; with R of 2 or more the effects'
    signal-to-noise ratio and the noise ceiling are shown beside.
    """
    from airrep.cli.show.evaluations import print_correlations
    from airrep.evaluation.loo import LooStudy

    opened = open_named(indexes, settings)
    (judged,) = _gather(labels, data=data, reading=reading, partial=partial, named=labels)
    asked = LooStudy(opened, judged, pool, temperature, resamples=resamples)
    judging.deliver(asked.request, asked.run, print_correlations)


def _gather(
    *parts: Sequence[str], data: Sequence[str] | None, reading: Reading, partial: bool, named: Sequence[str]
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
    to: Annotated[str | None, typer.Option("--to", help="Compare with the row of this name alone.")] = None,
    resamples: Annotated[
        int | None, typer.Option(min=1, help="Bootstrap draws of lds and loo; 1,000 if not given.")
    ] = None,
    as_json: JsonOption = False,
    out: Annotated[Path | None, typer.Option(help="Also write the comparison here.", metavar="RUN")] = None,
    replace: ReplaceOption = False,
) -> None:
    """Test rows of evaluations against each other, pair by pair, over the same queries and subsets.

    All runs must be of one measure, judged on the same queries and labels. p-values are two-sided; the adjusted ones
    (Holm) hold for all pairs shown together.
    """
    from airrep.cli.show.evaluations import print_comparison
    from airrep.evaluation.comparison import compare_evaluations, comparison_request, find_comparison
    from airrep.evaluation.result import command_line, read_evaluation

    named = [(str(run), read_evaluation(run)) for run in runs]
    found = None
    if out is not None and not replace:
        found = find_comparison(out, comparison_request(named, to, resamples))
    if found is not None:
        note(f"{out}: was finished already; --replace makes it again")
    else:
        found = compare_evaluations(named, to, resamples=resamples, command=command_line(sys.argv[1:]))
        if out is not None:
            found.write(out, replace=replace)
            note(f"{out}: written")
    if as_json:
        print_json(found.to_dict())
    else:
        print_comparison(found)


@app.command("datamodels")
@shared_options
def datamodels_command(
    labels: Annotated[str, typer.Argument(metavar="LABELS#i", help=f"One instance. {CHOICE_HELP}")],
    out: Annotated[Path, typer.Option(help="Directory of the weights.")],
    reading: Reading,
    data: DataOption = None,
    partial: PartialOption = False,
    as_json: JsonOption = False,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, as key=value, such as penalty=lasso.")
    ] = None,
    replace: ReplaceOption = False,
) -> None:
    """Regress each query's losses on who was in the subset. The result knows these queries and examples alone."""
    from airrep.cli.show.evaluations import print_datamodels
    from airrep.labels.gather import label_lineage
    from airrep.runtime.settings import read_settings
    from airrep.training.linear.datamodels import RegressionSettings, fit_datamodels, the_only

    chosen = RegressionSettings.of(read_settings(config, settings or ()))
    (judged,) = _gather([labels], data=data, reading=reading, partial=partial, named=[labels])
    instance = the_only(judged, labels)
    made = fit_datamodels(instance, out, chosen, lineage=label_lineage([labels]), replace=replace)
    if as_json:
        print_json(dict(made.report))
    else:
        print_datamodels(made)
    note(f"{out}: next: airrep index {out / 'train.jsonl'} --method datamodels --set weights={out} --out INDEX")


@app.command("stack")
@shared_options
def stack_command(
    labels: Annotated[list[str], typer.Argument(metavar="LABELS...", help=f"What to learn from. {CHOICE_HELP}")],
    held_out: Annotated[list[str], typer.Option("--held-out", help="Labels of other queries, to judge by.")],
    member: Annotated[list[str], typer.Option("--member", help=MEMBER_HELP)],
    out: Annotated[Path, typer.Option(help="Directory of the stack.")],
    reading: Reading,
    data: DataOption = None,
    pool: Annotated[
        str, typer.Option(help="sum, attention, signed-attention, or auto: what ranks LABELS best.")
    ] = "auto",
    partial: PartialOption = False,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Accept labels of several LMs, fine-tunings or precisions.")
    ] = False,
    as_json: JsonOption = False,
    replace: ReplaceOption = False,
) -> None:
    """Learn how to add up several methods' scores, and say whether that beats the best of them."""
    from airrep.cli.show.evaluations import print_stack
    from airrep.labels.gather import label_lineage
    from airrep.training.linear.stack import learn_stack
    from airrep.training.linear.weights import MemberChoice

    members = [MemberChoice.parse(text) for text in member]
    lineage = label_lineage(labels, held_out, mixed=mixed)
    named = [*labels, *held_out]
    learn, judge = _gather(labels, held_out, data=data, reading=reading, partial=partial, named=named)
    made = learn_stack(members, learn, judge, out, pool=pool, lineage=lineage, replace=replace)
    if as_json:
        print_json({"weights": [one.weight for one in made.members], **made.report})
    else:
        print_stack(made)
    note(f"{out}: next: airrep index DATA --method stack --set stack={out} --out INDEX")


@app.command("diagnose")
@shared_options
def diagnose_command(
    labels: Annotated[list[str], typer.Argument(metavar="LABELS...", help=LABELS_HELP)],
    reading: Reading,
    data: Annotated[
        list[str] | None, typer.Option("--data", help=f"The data of the labels; may be repeated. {DATA_HELP}")
    ] = None,
    index: Annotated[
        list[Path] | None, typer.Option("--index", help="An index whose scores are looked at too; may be repeated.")
    ] = None,
    pool: PoolOption = None,
    temperature: TemperatureOption = 1.0,
    partial: Annotated[bool, typer.Option("--partial", help="Accept unfinished labels.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the findings here.", metavar="RUN")] = None,
    replace: ReplaceOption = False,
) -> None:
    """Why an LDS is low: spread, noise and overlap of the labels, and what an index's scores make of them.

    Each finding has its number, a verdict and a paragraph of advice in docs/diagnosis.md.
    """
    from airrep.cli.show.evaluations import print_diagnosis
    from airrep.evaluation.diagnosis.diagnosis import diagnose as look
    from airrep.evaluation.diagnosis.diagnosis import diagnosis_request, find_diagnosis, seconds_of_fine_tunes
    from airrep.evaluation.result import command_line
    from airrep.labels.gather import gather

    instances = gather(labels, [reading.read(path) for path in data or ()], partial=partial, read=reading.read)
    indexes = [open_moved_index(path) for path in index or ()]
    found = None
    if out is not None and not replace:
        found = find_diagnosis(out, diagnosis_request(instances, indexes, pool, temperature))
    if found is not None:
        note(f"{out}: was finished already")
    else:
        seconds = seconds_of_fine_tunes([choice.partition("#")[0] for choice in labels])
        command = command_line(sys.argv[1:])
        found = look(instances, indexes, pool, temperature, seconds=seconds, command=command)
        if out is not None:
            found.write(out, replace=replace)
            note(f"{out}: written")
    if as_json:
        print_json(found.to_dict())
    else:
        print_diagnosis(found)
