"""Commands that judge methods by labels, and that learn from labels alone."""

from pathlib import Path
from typing import Annotated

import typer

from airrep.options import (
    DATA_HELP,
    PoolOption,
    Reading,
    ReplaceOption,
    TemperatureOption,
    note,
    open_index,
    print_json,
    shared_options,
)

CHOICE_HELP = "DIR#0,3-5 takes some instances of a directory that `airrep label` wrote."
MEMBER_HELP = "METHOD, or METHOD:key=value,key=value, or METHOD:settings.yaml; may be repeated."

DataOption = Annotated[list[str], typer.Option("--data", help=f"The data of the labels; may be repeated. {DATA_HELP}")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
PartialOption = Annotated[bool, typer.Option("--partial", help="Accept unfinished labels.")]

app = typer.Typer()
evaluate = typer.Typer(no_args_is_help=True, help="Judge indexes by labels.")
app.add_typer(evaluate, name="evaluate")


@evaluate.command()
@shared_options
def lds(
    indexes: Annotated[list[Path], typer.Argument(metavar="INDEX...", help="Index directories, one row for each.")],
    labels: Annotated[list[str], typer.Option("--labels", help=f"Labels to judge by; may be repeated. {CHOICE_HELP}")],
    data: DataOption,
    reading: Reading,
    pool: PoolOption = None,
    temperature: TemperatureOption = 1.0,
    tune: Annotated[
        list[str] | None,
        typer.Option("--tune", help="Other labels, on which each attention pool gets its best temperature."),
    ] = None,
    partial: PartialOption = False,
    as_json: JsonOption = False,
    out: Annotated[Path | None, typer.Option(help="Also write the table here.", metavar="RUN")] = None,
    replace: ReplaceOption = False,
) -> None:
    """How well indexes rank labelled subsets: LDS with intervals, and each one's paired difference to the first.

    An index may be of any data that contains the train pools. For a fair comparison give --tune, with labels that
    are not among --labels.
    """
    from airrep.artifacts import check_free, real_path
    from airrep.evaluating import KIND, evaluate_lds
    from airrep.evaluating_console import print_lds
    from airrep.learning import gather

    if out is not None:
        check_free(real_path(out), KIND, replace=replace)
    corpora, named = [reading.read(path) for path in data], [*labels, *(tune or ())]
    judged, tuned = (gather(part, corpora, partial=partial, beside=named) for part in (labels, tune or ()))
    table = evaluate_lds([open_index(path) for path in indexes], judged, pool, temperature, tune=tuned)
    if out is not None:
        table.write(out, replace=replace)
        note(f"{out}: written")
    if as_json:
        print_json(table.to_dict())
    else:
        print_lds(table)


@app.command()
@shared_options
def datamodels(
    labels: Annotated[str, typer.Argument(metavar="LABELS#i", help=f"One instance. {CHOICE_HELP}")],
    data: DataOption,
    out: Annotated[Path, typer.Option(help="Directory of the weights.")],
    reading: Reading,
    partial: PartialOption = False,
    as_json: JsonOption = False,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, as key=value, such as penalty=lasso.")
    ] = None,
    replace: ReplaceOption = False,
) -> None:
    """Regress each query's losses on who was in the subset. The result knows these queries and examples alone."""
    from airrep.config import read_settings
    from airrep.datamodels import RegressionSettings, fit_datamodels, the_only
    from airrep.evaluating_console import print_datamodels
    from airrep.learning import gather, lineage_of

    chosen = RegressionSettings.of(read_settings(config, settings or ()))
    instance = the_only(gather([labels], [reading.read(path) for path in data], partial=partial), labels)
    made = fit_datamodels(instance, out, chosen, lineage=lineage_of([labels]), replace=replace)
    if as_json:
        print_json(dict(made.report))
    else:
        print_datamodels(made)
    note(f"{out}: next: airrep index {out / 'train.jsonl'} --method datamodels --set weights={out} --out INDEX")


@app.command()
@shared_options
def stack(
    labels: Annotated[list[str], typer.Argument(metavar="LABELS...", help=f"What to learn from. {CHOICE_HELP}")],
    held_out: Annotated[list[str], typer.Option("--held-out", help="Labels of other queries, to judge by.")],
    data: DataOption,
    member: Annotated[list[str], typer.Option("--member", help=MEMBER_HELP)],
    out: Annotated[Path, typer.Option(help="Directory of the stack.")],
    reading: Reading,
    pool: Annotated[str, typer.Option(help="sum, attention, or auto: what ranks LABELS best.")] = "auto",
    partial: PartialOption = False,
    mixed: Annotated[bool, typer.Option("--mixed", help="Accept labels of several LMs or fine-tunings.")] = False,
    as_json: JsonOption = False,
    replace: ReplaceOption = False,
) -> None:
    """Learn how to add up several methods' scores, and say whether that beats the best of them."""
    from airrep.evaluating_console import print_stack
    from airrep.learning import gather, lineage_of
    from airrep.stack_weights import MemberChoice
    from airrep.stacking import learn_stack

    members = [MemberChoice.parse(text) for text in member]
    lineage = lineage_of(labels, held_out, mixed=mixed)
    corpora, named = [reading.read(path) for path in data], [*labels, *held_out]
    learn, judge = (gather(part, corpora, partial=partial, beside=named) for part in (labels, held_out))
    made = learn_stack(members, learn, judge, out, pool=pool, lineage=lineage, replace=replace)
    if as_json:
        print_json({"weights": [one.weight for one in made.members], **made.report})
    else:
        print_stack(made)
    note(f"{out}: next: airrep index DATA --method stack --set stack={out} --out INDEX")
