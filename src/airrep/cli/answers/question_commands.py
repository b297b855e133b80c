"""Commands that answer questions: clean, audit, mix."""

from pathlib import Path
from typing import Annotated

import typer

from airrep.cli import options
from airrep.cli.options import note, shared_options
from airrep.errors import ConfigError

app = typer.Typer()
MovedOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the index that is another now, as key=value: where a model has moved to."),
]


@app.command("clean")
@shared_options
def clean_command(
    path: options.IndexArgument,
    reading: options.ReadingOptions,
    delivery: options.HitOptions,
    queries: Annotated[
        str | None, typer.Argument(metavar="QUERIES", help=f"Queries, to find what harms many. {options.DATA_HELP}")
    ] = None,
    better: options.BetterOption = None,
    kind: Annotated[
        list[str] | None,
        "What to look for: label, answer, duplicate, outlier, harmful; or several, as label,answer; all if not given.",
    ] = None,
    label: Annotated[str, "The field of the label; response where answers are labels themselves."] = "label",
    where: options.WhereOption = None,
    lists: Annotated[
        Path | None, typer.Option(metavar="DIR", help="New folder for keep.jsonl, and drop.jsonl with the reasons.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        "Kinds whose findings go on the drop list, such as duplicate,label; may be repeated; all if not given.",
    ] = None,
    encoder: Annotated[
        str, "Sentence encoder that tells how near texts are: 'static', 'default', a folder or a Hub id."
    ] = "static",
    moved: MovedOption = None,
) -> None:
    """Find likely wrong labels and answers, near duplicates, outliers, and what harms many queries; with reasons."""
    from airrep.answers.clean import KEEP, KINDS, LISTS, checked_kinds, clean
    from airrep.answers.texts import kept_values
    from airrep.cli.show.answers import print_cleaned
    from airrep.cli.show.console import Meter
    from airrep.runtime.remote.outputs import check_new_folder

    delivery.check("clean")
    kinds = checked_kinds(_split(kind) or KINDS, KINDS)
    dropped = checked_kinds(_split(drop) or kinds, kinds)
    if drop and lists is None:
        raise ConfigError("clean: --drop says what goes on the lists of --lists DIR. Give that too, or leave it out.")
    if lists is not None:
        check_new_folder(lists, LISTS if delivery.replace else ())
    opened = options.open_moved_index(path, moved)
    own = reading.for_queries(opened)
    asked = own.read_if(queries)
    others = options.better_of(better, own, asked or (), typed=False)
    with Meter("encoding examples") as meter:
        result = clean(
            opened, asked, better=others, kinds=kinds, label=label, where=where, encoder=encoder, progress=meter
        )
    if lists is not None:
        rows = list(result.dropped(dropped))
        result.write_lists(opened, lists, kinds=dropped, replace=delivery.replace)
        note(f"{lists}: {result.examples - len(rows):,} examples to keep, {len(rows):,} to drop")
        kept = opened.mask(where)
        kept[rows] = False
        options.tell_records(opened, kept_values(opened, kept, "prompt"), lists, KEEP)
    delivery.deliver(result, print_cleaned)


def _split(kinds: list[str] | None) -> list[str]:
    """Kinds that are given one by one, or several with commas between."""
    return [name.strip() for kind in kinds or () for name in kind.split(",")]


@app.command("audit")
@shared_options
def audit_command(
    path: options.IndexArgument,
    items: Annotated[str, typer.Argument(metavar="EVAL", help=f"Evaluation items. {options.DATA_HELP}")],
    reading: options.ReadingOptions,
    delivery: options.HitOptions,
    where: options.WhereOption = None,
    order: Annotated[int, "Words of an n-gram, 4 or more."] = 8,
    contained: Annotated[float, "Share of an item's n-grams in one example from which on it is contained."] = 0.95,
    nearly: Annotated[float, "Share from which on it is nearly contained."] = 0.5,
    cosine: Annotated[float, "Cosine of embeddings from which on it is alike in meaning."] = 0.97,
    moved: MovedOption = None,
) -> None:
    """Find evaluation items that the training data contain, or nearly contain, by words and by meaning."""
    from airrep.answers.audit import AuditSettings, audit
    from airrep.cli.show.answers import print_audited
    from airrep.cli.show.console import Meter

    delivery.check("audit")
    settings = AuditSettings.of({"order": order, "contained": contained, "nearly": nearly, "cosine": cosine})
    opened = options.open_moved_index(path, moved)
    asked = reading.for_queries(opened).read(items)
    with Meter("reading examples") as meter:
        result = audit(opened, asked, where=where, settings=settings, progress=meter)
    delivery.deliver(result, print_audited)


@app.command("mix")
@shared_options
def mix_command(
    asking: options.QueryOptions,
    delivery: options.HitOptions,
    by: Annotated[str, "The field that names the source."] = "source",
    top: Annotated[float, "Share of the examples that count as helping a query most."] = 0.01,
    where: options.WhereOption = None,
    seed: Annotated[int, "Of the resamples of queries."] = 0,
    yaml: Annotated[Path | None, typer.Option(metavar="FILE", help="New file for the weights as YAML.")] = None,
    llama_factory: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="New file for LLaMA-Factory's arguments that mix them so."),
    ] = None,
    axolotl: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="New folder for axolotl: examples drawn to the weights, and its data-set entries."
        ),
    ] = None,
) -> None:
    """Weigh sources for a target: each one's share of the examples that help it most, with intervals."""
    from airrep.answers.mix import DRAWN, mix, write_axolotl
    from airrep.cli.show.answers import print_mix
    from airrep.cli.show.console import Meter
    from airrep.index.selection.picks import check_writable
    from airrep.runtime.remote.outputs import check_new_folder, write_output

    delivery.check("mix")
    if axolotl is not None:
        check_new_folder(axolotl, DRAWN if delivery.replace else ())
    files = [file for file in (yaml, llama_factory) if file is not None]
    places = [str(path.resolve()) for path in (*files, axolotl, delivery.run) if path is not None]
    twice = next((path for path in places if places.count(path) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"{twice}: is asked for twice, by two of --yaml, --llama-factory, --axolotl and --out. Change one."
        )
    for file in files:
        check_writable(file, replace=delivery.replace)
    opened = asking.index()
    asked, better = asking.question(opened)
    with Meter("encoding queries") as meter:
        result = mix(opened, asked, by, better=better, top=top, where=where, seed=seed, progress=meter)
    texts = [result.to_yaml() if file == yaml else result.to_llama_factory() for file in files]
    if axolotl is not None:  # first, as it may be refused
        drawn = write_axolotl(result, opened, axolotl, seed=seed, replace=delivery.replace)
        note(f"{axolotl}: {sum(drawn.values()):,} of {sum(one.examples for one in result.sources):,} examples, written")
    for file, text in zip(files, texts, strict=True):  # all could be made: a source's name may fit into none
        write_output(file, text.encode())
        note(f"{file}: written")
    delivery.deliver(result, print_mix)
