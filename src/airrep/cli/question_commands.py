"""Commands that answer questions: clean, audit, mix."""

from pathlib import Path
from typing import Annotated, Any

import typer

from airrep.cli import options
from airrep.cli.flags import Setting
from airrep.cli.options import note
from airrep.errors import ConfigError, many

app = typer.Typer()

NEAR_BY_HELP = (
    "Sentence encoder that measures how similar texts are: 'static' (fast), 'default' (a transformer), a folder or a "
    "Hub id."
)


@app.command("clean")
def clean_command(
    path: options.IndexArgument,
    reading: options.ReadingOptions,
    delivery: options.HitOptions,
    queries: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERIES", help=f"Queries, needed to find examples that harm many of them. {options.DATA_HELP}"
        ),
    ] = None,
    better: options.BetterOption = None,
    kind: Annotated[
        list[str] | None,
        "What to look for: label, answer, duplicate, outlier or harmful; or several, as label,answer. Default: all.",
    ] = None,
    label: Annotated[
        str, "Name of the field that holds the class label; give 'response' if the answers are the labels."
    ] = "label",
    where: options.WhereOption = None,
    lists: Annotated[
        Path | None, typer.Option(metavar="DIR", help="New folder for keep.jsonl, and drop.jsonl with the reasons.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        Setting("Kinds of findings that --lists writes to drop.jsonl, such as duplicate,label. Default: all."),
    ] = None,
    near_by: Annotated[str, Setting(NEAR_BY_HELP)] = "static",
    *,
    settings: options.ChangedOption,
) -> None:
    """Find examples that are probably wrong, repeated, odd or harmful to many queries, and say why."""
    from airrep.answers.clean import KEEP, KINDS, LISTS, checked_kinds, clean
    from airrep.answers.texts import kept_values
    from airrep.cli.show.answers import print_cleaned
    from airrep.runtime.remote.outputs import check_new_folder

    delivery.check("clean")
    kinds = checked_kinds(_split(kind) or KINDS, KINDS)
    dropped = checked_kinds(_split(drop) or kinds, kinds)
    if drop and lists is None:
        raise ConfigError("clean: --set drop= works only with --lists DIR. Add --lists, or leave drop out.")
    if lists is not None:
        check_new_folder(lists, LISTS if delivery.replace else ())
    opened = options.open_moved_index(path, settings)
    own = reading.for_queries(opened)
    asked = own.read_if(queries, better)
    others = options.better_of(better, own, asked or ())
    how: dict[str, Any] = {"better": others, "kinds": kinds, "label": label, "where": where, "encoder": near_by}
    result = clean(opened, asked, **how, progress=True)
    for one in _split(drop):
        if one in result.skipped:
            raise ConfigError(f"--set drop={one}: is not checked: {result.skipped[one]}. Remove {one} from drop=.")
    if lists is not None:
        rows = list(result.dropped(dropped))
        result.write_lists(opened, lists, kinds=dropped, replace=delivery.replace)
        note(f"{lists}: {many(result.examples - len(rows), 'example')} to keep, {len(rows):,} to drop")
        kept = opened.mask(where)
        kept[rows] = False
        options.tell_records(opened, kept_values(opened, kept, "prompt"), lists, KEEP)
    delivery.deliver(result, print_cleaned)


def _split(kinds: list[str] | None) -> list[str]:
    return [name.strip() for kind in kinds or () for name in kind.split(",")]


@app.command("audit")
def audit_command(
    path: options.IndexArgument,
    items: Annotated[str, typer.Argument(metavar="EVAL", help=f"Evaluation items. {options.DATA_HELP}")],
    reading: options.ReadingOptions,
    delivery: options.HitOptions,
    where: options.WhereOption = None,
    order: Annotated[int, Setting("Number of words in an n-gram, 4 or more.")] = 8,
    contained: Annotated[
        float, Setting("An item is contained if one example has at least this share of its n-grams.")
    ] = 0.95,
    nearly: Annotated[
        float, Setting("An item is nearly contained if one example has at least this share of its n-grams.")
    ] = 0.5,
    cosine: Annotated[
        float,
        Setting(
            "An item counts as alike in meaning if its embedding and that of a training example have at least this "
            "cosine similarity."
        ),
    ] = 0.97,
    *,
    settings: options.ChangedOption,
) -> None:
    """Find evaluation items that leak into the training data, word for word or in meaning."""
    from airrep.answers.audit import AuditSettings, audit
    from airrep.cli.show.answers import print_audited

    delivery.check("audit")
    limits = AuditSettings.of({"order": order, "contained": contained, "nearly": nearly, "cosine": cosine})
    opened = options.open_moved_index(path, settings)
    asked = reading.for_queries(opened).read(items)
    result = audit(opened, asked, where=where, settings=limits, progress=True)
    delivery.deliver(result, print_audited)


FORMS = ("yaml", "llama-factory", "axolotl")
"""Formats that --write of mix can write."""


def _places(texts: list[str] | None) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for text in texts or ():
        form, _, place = text.partition("=")
        if form not in FORMS or not place or form in found:
            raise ConfigError(
                f"--write {text}: must be FORM=PLACE. FORM is one of {', '.join(FORMS)}; give each only once."
            )
        found[form] = Path(place)
    return found


@app.command("mix")
def mix_command(
    asking: options.QueryOptions,
    delivery: options.HitOptions,
    by: Annotated[str, "The field that names the source."] = "source",
    top: Annotated[float, Setting("Count only the top of each query's ranking: this share of all examples.")] = 0.01,
    where: options.WhereOption = None,
    seed: Annotated[int, Setting("Random seed of the bootstrap over queries, which gives the intervals.", 0)] = 0,
    write: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORM=PLACE",
            help="Also write the sources' weights: yaml=FILE; llama-factory=FILE (arguments for LLaMA-Factory); "
            "axolotl=DIR (sampled examples, and entries for Axolotl's config). May be repeated.",
        ),
    ] = None,
) -> None:
    """Suggest a weight for each source: its share of the examples that help the target queries most."""
    from airrep.answers.mix import DRAWN, mix, write_axolotl
    from airrep.cli.show.answers import print_mix
    from airrep.index.selection import check_writable
    from airrep.runtime.remote.outputs import check_new_folder, write_output

    delivery.check("mix")
    places = _places(write)
    yaml, llama_factory, axolotl = map(places.get, FORMS)
    if axolotl is not None:
        check_new_folder(axolotl, DRAWN if delivery.replace else ())
    files = [file for file in (yaml, llama_factory) if file is not None]
    taken = [str(path.resolve()) for path in (*places.values(), delivery.run) if path is not None]
    twice = next((path for path in taken if taken.count(path) > 1), None)
    if twice is not None:
        raise ConfigError(f"{twice}: --write and --out name this place twice. Change one of them.")
    for file in files:
        check_writable(file, replace=delivery.replace)
    opened, asked, better = asking.opened()
    result = mix(opened, asked, by, better=better, top=top, where=where, seed=seed, progress=True)
    texts = [result.to_yaml() if file == yaml else result.to_llama_factory() for file in files]
    if axolotl is not None:  # first, as it may be refused
        drawn = write_axolotl(result, opened, axolotl, seed=seed, replace=delivery.replace)
        note(f"{axolotl}: wrote {sum(drawn.values()):,} of {sum(one.examples for one in result.sources):,} examples")
    for file, text in zip(files, texts, strict=True):  # all could be made: a source's name may fit into none
        write_output(file, text.encode())
        note(f"{file}: written")
    delivery.deliver(result, print_mix)
