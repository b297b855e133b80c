"""Commands that build, change and export an index."""

import shlex
from collections import Counter
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep.cli import options
from airrep.cli.flags import Setting
from airrep.cli.options import DryRunOption, note, open_moved_index
from airrep.errors import AirRepError, ConfigError, many

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from airrep.attributors.base import Attributor
    from airrep.corpus.corpus import Corpus
    from airrep.index.index import Index
    from airrep.index.rows import IndexRows
    from airrep.runtime.settings import Settings

app = typer.Typer()


@dataclass(frozen=True)
class MakingOptions:
    """Options that choose what makes the features: a recipe or one method, and the models that it reads."""

    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Recipe (list of methods): a name or a YAML file. Default: 'text'; with --lm: 'lm'; with --lm and "
            "--warmed: 'lm-warm'.",
        ),
    ] = None
    method: Annotated[
        str | None,
        "Use a single method instead of a recipe (list of methods). `airrep show methods` lists the methods.",
    ] = None
    encoder: options.EncoderOption = None
    lm: Annotated[str | None, "Target language model before fine-tuning, a folder or a Hub id."] = None
    warmed: Annotated[str | None, "Folder that `airrep warmup` wrote: the same model after a brief fine-tune."] = None
    precision: options.PrecisionOption = None
    device: options.DeviceOption = None
    memory: Annotated[str | None, "With --lm: memory limit of the process, such as 8GB."] = None

    def of(self, configuring: options.ConfigOptions, reading: options.ReadingOptions) -> dict[str, Any]:
        """Recipe, method and settings of a build."""
        chosen = self.method is not None or self.recipe is not None
        if self.encoder is not None and not chosen and (self.lm is not None or self.warmed is not None):
            raise ConfigError(
                "index: --encoder without --recipe uses only the encoder. Remove --lm and --warmed, or use them too "
                "with --recipe lm (for --warmed: --recipe lm-warm)."
            )
        flags = {name: value for name, value in vars(self).items() if name not in ("recipe", "method")}
        values = configuring.values(flags)
        settings = {**(reading.lengths if "lm" in values else {}), **values}
        return {"method": self.method, "recipe": self.recipe, "settings": settings}


@dataclass(frozen=True)
class ShardOptions:
    """Options of shards, and of the part of them that one machine makes."""

    shard_rows: Annotated[
        int | None,
        Setting(
            "Number of examples in a shard, which airrep writes at once. An interruption loses at most the work on one "
            "shard. Default: a twelfth of the examples, but at least 4096 and at most 32768."
        ),
    ] = None
    part: Annotated[
        str | None,
        "As i/n: build only the i-th of n parts of the index. Give the whole DATA each time. `airrep append NEW-INDEX "
        "PART...` joins the parts.",
    ] = None
    state: Annotated[
        Path | None,
        Setting("With --part: finished part, whose statistics of all data (such as word frequencies) are reused."),
    ] = None


@app.command("index")
def index_command(
    train: options.DataArgument,
    out: Annotated[Path, "Directory to write the index to."],
    reading: options.ReadingOptions,
    making: MakingOptions,
    *,
    configuring: options.ConfigOptions,
    shards: ShardOptions,
    running: options.EngineOptions,
    replace: options.ReplaceOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Build an index of training data. After an interruption, run it again: it goes on where it stopped."""
    if shards.state is not None and shards.part is None:
        raise ConfigError("index: --set state= works only with --part. Add --part, or leave state out.")
    from airrep.index.building import build_index
    from airrep.index.sharing import build_part
    from airrep.runtime.artifacts import is_free, real_path

    what: Any = {**making.of(configuring, reading), "skip_invalid": reading.skip_invalid}
    corpus, existed = reading.read(train), not is_free(real_path(out))
    if dry_run:
        from airrep.cli.show.results import print_forecast
        from airrep.planning.budget import forecast_index

        found = forecast_index(corpus, lambda some, path: build_index(some, path, **what))
        print_forecast(found, "example", "examples", running.workers)
        return

    if what["settings"].get("lm") is not None and (not existed or replace):
        _tell_reading(what, len(corpus))
    what |= {"shard_rows": shards.shard_rows, "replace": replace, "engine": running.make(), "progress": True}
    if shards.part is not None:
        made = build_part(corpus, out, shards.part, state=shards.state, **what)
        _tell_left_out(out, len(corpus) - made.rows)
        told = f"part {made.share} of {many(made.rows, 'example')}, {many(len(made.shards), 'shard')}"
        note(f"{out}: {told}, {_kind(made.lineage)}; next: airrep append NEW-INDEX PART...")
        _tell_cautions(made.lineage, [corpus], out)  # every part is given all examples
        return
    built = build_index(corpus, out, **what)
    _tell_built(built, corpus, out, "was finished already" if existed and not replace else "built")


def _tell_reading(what: "Mapping[str, Any]", count: int) -> None:
    """Say why a language model is read, and what that costs, if it only weighs the tokens that are counted."""
    from airrep.attributors.recipes import ChannelsSettings

    recipe, reading = what["recipe"], {what["method"]}
    if recipe is not None:
        channels = ChannelsSettings.of({**what["settings"], "channels": recipe}, "recipe").channels
        reading = {one.method for one in channels if "lm" in one.settings}
    if reading == {"ngram"}:
        note(
            f"the LM reads {many(count, 'response')} to give a low weight to tokens that the LM expects. --dry-run "
            "shows how long this takes. To give all tokens the same weight, replace --lm MODEL by --set "
            "tokenizer=MODEL."
        )


def _tell_built(built: "Index", corpus: "Corpus", out: Path, outcome: str) -> None:
    _tell_left_out(out, len(corpus) - len(built))
    note(f"{out}: {outcome}: {many(len(built), 'example')}, {_kind(built.manifest)}; next: airrep top {out} QUERIES")
    if outcome == "built":
        _tell_cautions(built.manifest, [corpus], out)
    _tell_scripts(built.attributor.settings, corpus, out)
    if outcome == "built":
        _tell_long_prompts(built.attributor, corpus, out)
    _tell_empty(built, out)


def _kind(lineage: "Mapping[str, Any]") -> str:
    """Words that name the recipe, or the method, and the LM that was read where adapters were left out."""
    own = lineage["settings"]
    if "channels" in own:
        from airrep.attributors.recipes import Channel, recipe_of

        told = f"recipe {recipe_of([Channel.model_validate(one) for one in own['channels']])}"
    else:
        told = f"method {lineage['method']}"
    read = [own, *(channel["settings"] for channel in own.get("channels", ()))]
    found = next((one for one in read if one.get("lm") is not None and one.get("merged") is False), None)
    if found is None:
        return told
    from airrep.lm.folders.forms import find_lm

    base = find_lm(found["lm"], found.get("trust_remote_code", False), found.get("base"), False).base
    return f"{told} with the LM {base}, without the adapters {found['lm']}"


def _tell_left_out(out: Path, count: int) -> None:
    if count:
        note(f"{out}: {many(count, 'example')} left out, because the language model cannot read the whole text")


def _tell_cautions(lineage: "Mapping[str, Any]", examples: "Iterable[Corpus]", out: Path) -> None:
    """Say what is known about a method, by the fields that tell how it was made, and which examples it cannot see."""
    from airrep.attributors.methods import make_attributor
    from airrep.attributors.sums.channels import ChannelsAttributor

    if lineage.get("caution"):  # an index of before tells none
        note(f"{out}: {lineage['caution']}")
    if lineage["method"] != ChannelsAttributor.name:
        return
    unseen = Counter[str]()
    try:
        method = make_attributor(lineage["method"], lineage["settings"])
    except AirRepError as error:  # joining needs no package and no model that a channel needs
        note(f"{out}: is complete, but airrep could not check if its methods can read all examples: {error}")
        return
    if isinstance(method, ChannelsAttributor):
        for some in examples:
            unseen.update(method.unseen(some))
    for channel, count in unseen.items():
        note(
            f"{out}: channel (method) '{channel}' has nothing to read in {many(count, 'example')}, so its score is 0 "
            "for them. Check their texts"
        )


def _tell_scripts(settings: "Settings", corpus: "Corpus", out: Path) -> None:
    """Say of a method that counts words where few stand between spaces."""
    from airrep.corpus.words import unspaced

    if getattr(settings, "signs", True) or getattr(settings, "tokenizer", "words") != "words":
        return
    responses = corpus.table.select(["response"]).to_batches(max_chunksize=4096)
    count = sum(unspaced(str(text)) for batch in responses for text in batch.column(0).to_pylist())
    if count:
        note(
            f"{out}: {many(count, 'response has', 'responses have')} no spaces between words, so whole clauses count "
            "as one word. --set signs=true counts single characters instead"
        )


def _tell_long_prompts(method: "Attributor", corpus: "Corpus", out: Path) -> None:
    """Say of how many prompts an encoder does not read the end, where the question may stand."""
    from airrep.attributors.encoder import EmbeddingAttributor
    from airrep.attributors.sums.channels import ChannelsAttributor

    parts = method.parts if isinstance(method, ChannelsAttributor) else (method,)
    encoders = [
        one.encoder for one in parts if isinstance(one, EmbeddingAttributor) and one.settings.view != "response"
    ]
    words = min((encoder.prompt_words for encoder in encoders), default=0)
    if not words:
        return
    prompts = corpus.table.select(["prompt"]).to_batches(max_chunksize=4096)
    count = sum(len(str(text).split(None, words)) > words for batch in prompts for text in batch.column(0).to_pylist())
    if count:
        note(
            f"{out}: {many(count, 'prompt is', 'prompts are')} too long for the encoder, which reads only the first "
            f"{words} words. Shorten prompts whose question comes later"
        )


def _tell_empty(built: "IndexRows", out: Path, before: int = 0) -> None:
    if built.empty > before:
        note(
            f"{out}: for {many(built.empty - before, 'example')}, all features that the method computes are 0, or too "
            "small for float16, so scores are 0 or inexact. If many examples are affected, use another method"
        )


@app.command("append")
def append_command(
    ctx: typer.Context,
    path: options.IndexArgument,
    more: Annotated[
        list[str],
        typer.Argument(metavar="DATA...", help=f"{options.DATA_HELP} Or outputs of `airrep index --part`, to join."),
    ],
    reading: options.ReadingOptions,
    settings: options.ChangedOption,
) -> None:
    """Add examples to an index, or join the parts that `airrep index --part` made.

    New data are read with the options that the index's data were read with, unless you type other options. What a
    method learnt from the first data (word frequencies, the curvature of the loss) stays the same. So if the new data
    are many and of another kind, build the index again.
    """
    from airrep.index.sharing import is_part

    if is_part(more[0]):
        _join(path, more)
        return
    opened = open_moved_index(path, settings)
    own = _as_before(opened, reading, options.typed(ctx))
    for data in more:
        corpus = own.read(data)
        now = opened.append(corpus, skip_invalid=reading.skip_invalid, progress=True)
        there = "" if len(now) > len(opened) else f" ({many(len(corpus), 'was', 'were')} there already)"
        note(f"{path}: {many(len(now) - len(opened), 'example')} added{there}, {len(now):,} in all")
        _tell_empty(now, path, opened.empty)
        opened = now


def _join(out: Path, parts: list[str]) -> None:
    from airrep.index.sharing import join_parts

    joined = join_parts(parts, out)
    note(f"{out}: joined: {many(len(joined), 'example')}, {_kind(joined.manifest)}; next: airrep top {out} QUERIES")
    _tell_cautions(joined.manifest, (shard.examples for shard in joined.shards), out)
    _tell_empty(joined, out)


def _as_before(index: "IndexRows", reading: options.ReadingOptions, typed: "Collection[str]") -> options.ReadingOptions:
    """Options of reading, of which those that were not typed are the index's; it is told which these are.

    Fields go together: records that have another field of the prompt may have no label at all.
    """
    others = set(typed) | (set(options.FIELDS) if set(typed) & set(options.FIELDS) else set())
    recorded: dict[str, Any] = {name: value for name, value in index.reading.options.items() if name not in others}
    if recorded:
        flags = shlex.join(
            [word for name, value in recorded.items() for word in (f"--{name.replace('_', '-')}", value)]
        )
        note(
            f"{index.path}: your data are read with the options that the index was built with: "
            f"{flags}. To replace one of these options, type it. After one field option, such as "
            "--prompt-field, type all field options that your data need"
        )
    return changed(reading, **recorded)


@app.command("delete")
def delete_command(
    path: options.IndexArgument,
    where: Annotated[str | None, "Delete the examples that match this filter, such as 'label == \"gsm8k\"'."] = None,
    ids: Annotated[list[str] | None, typer.Option("--id", help="Id of an example to delete; may be repeated.")] = None,
    compact: Annotated[bool, "Rewrite the index to free the disk space of deleted examples."] = False,
) -> None:
    """Delete examples from an index."""

    if (where is None) == (not ids) and not (compact and where is None):
        raise ConfigError("delete: give either --where or --id, to say which examples to delete.")
    now = opened = open_moved_index(path)
    if where is not None or ids:
        rows = opened.where(where) if where is not None else opened.rows_of(ids or [])
        now = opened.delete(rows)
        why = f"; {opened.unmatched(where)}" if where is not None and not len(rows) else ""
        note(f"{path}: {many(len(opened) - len(now), 'example')} deleted, {len(now):,} left{why}")
    if compact:
        now = now.compact(progress=True)
        note(f"{path}: {many(len(now), 'example')} in {many(len(now.shards), 'shard')}")


@app.command("export")
def export_command(
    ctx: typer.Context,
    path: options.IndexArgument,
    to: Annotated[
        str,
        "Format: embedding-atlas, parquet, csv, lance, records (copied unchanged from --data) or citations (JSON-LD).",
    ],
    out: Annotated[Path, "File to write; a folder for lance."],
    reading: options.ReadingOptions,
    where: options.WhereOption = None,
    only: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --to records or citations: export only the examples in this file, which `airrep select`, "
            "`clean`, `mix` or `top --json` wrote. With --to citations, a directory that `airrep top --out` "
            "wrote works, too.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        "The data that the index was built from. `--to records` copies records of this data; `--to citations` checks "
        "that the cited records are still in it.",
    ] = None,
    vectors: Annotated[bool, Setting("Also write a column with the dense features of each example.")] = True,
    exact: Annotated[bool, Setting("For csv: do not write ' before cells that start like a formula.")] = False,
    replace: options.ReplaceOption = False,
) -> None:
    """Write the examples of an index, or the records that they were read from, to a file for other tools.

    Records are the original rows, including what the index does not store: messages, tools and rejected answers. With
    --to citations, each record names the data set, revision, line, source, licence and hash of an example.
    """
    from airrep.index.export import CITATIONS, RECORDS, export_index
    from airrep.index.rows import IndexRows

    index = IndexRows(path)
    if to in (RECORDS, CITATIONS):
        export = _export_records if to == RECORDS else _export_citations
        export(index, data, only, out, _as_before(index, reading, options.typed(ctx)), where=where, replace=replace)
        return
    if only is not None or data is not None:
        raise ConfigError("export: --only and --data work only with --to records or citations. Leave them out.")
    how: dict[str, Any] = {"where": where, "vectors": vectors, "exact": exact, "replace": replace}
    made = export_index(index, out, to, **how, progress=True)
    dense = f", vectors of {many(made.width, 'number')}" if made.width else ""
    kept = f"; no example fails the filter {where}" if where is not None and made.rows == len(index) else ""
    note(f"{out}: {many(made.rows, 'example')}, {many(len(made.columns), 'column')}{dense}{kept}")
    if made.guarded:
        formulas = many(made.guarded, "cell looks like a formula", "cells look like formulas")
        note(f"{out}: {formulas}, so each got a ' before it. To write such cells unchanged, add --set exact=true")
    if to == "embedding-atlas":
        placed = " --vector vector" if made.width else ""
        note(f"next: pip install embedding-atlas, then: embedding-atlas {out} --text text{placed}")


def _export_records(
    index: "IndexRows",
    data: str | None,
    only: Path | None,
    out: Path,
    reading: options.ReadingOptions,
    *,
    where: str | None,
    replace: bool,
) -> None:
    """Copy the records that examples were read from, as they are; without *only*, of all that pass *where*."""
    import numpy as np

    from airrep.answers.texts import kept_examples
    from airrep.corpus.records import encode_record
    from airrep.index.rows import TEXTS
    from airrep.index.selection import check_selection
    from airrep.runtime.remote.outputs import is_same_file, write_output

    if data is None:
        raise ConfigError("export: --to records copies records from your data. Add --data DATA.")
    if only is not None and where is not None:
        raise ConfigError("export: --only and --where cannot be combined. Remove one of the two.")
    if index.reading.mixed:
        note(
            f"{index.path}: data were added to this index with different reading options. If {data} was added by "
            "`airrep append`, give the options of that command here too, such as --prompt-field"
        )
    check_selection(out, replace=replace)
    if any(is_same_file(out, read) for read in (data, only) if read is not None):
        raise ConfigError(f"export: --out {out} is also an input file. Give another file.")
    examples: Any = str(only)
    if only is None:  # without texts, the ids alone say which records they are
        keep = index.live if where is None else np.isin(np.arange(index.rows), index.check_rows(where))
        examples = (one if index.manifest.get(TEXTS, True) else one.id for _, one in kept_examples(index, keep))
    records = list(reading.taken(data, examples))
    write_output(out, (f"{encode_record(record)}\n".encode() for record in records))
    note(f"{out}: {many(len(records), 'record')} of {data}, copied unchanged")


def _export_citations(
    index: "IndexRows",
    data: str | None,
    only: Path | None,
    out: Path,
    reading: options.ReadingOptions,
    *,
    where: str | None,
    replace: bool,
) -> None:
    """Cite examples, and say what was not recorded and what differs by now."""
    import json

    from airrep.index.export import check_target
    from airrep.index.results.citations import SAME, UNCHECKED, as_croissant, unknown
    from airrep.reports.citing import citations
    from airrep.runtime.remote.outputs import write_output

    check_target(out, folder=False, replace=replace)
    found = citations(index, only, where, None if data is None else reading.read(data))
    document = as_croissant(found)
    write_output(out, f"{json.dumps(document, indent=1, ensure_ascii=False)}\n".encode("utf-8", "replace"))
    note(f"{out}: {many(len(found), 'citation')}")
    if (told := unknown(found)) != "":
        note(f"{out}: {told.rstrip('.').lower()}")
    if differ := [one for one in found if one.check not in (SAME, UNCHECKED)]:
        note(
            f"{out}: {many(len(differ), 'example has', 'examples have')} changed or disappeared since the index or "
            f"the result was made; the field 'check' of each citation says how. The first is {differ[0].id}: "
            f"{differ[0].check}"
        )
