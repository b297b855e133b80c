"""The command line: all commands, and show, report, push, demo."""

import atexit
import gc
import os
import sys
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from airrep._version import __version__
from airrep.cli.flags import Setting
from airrep.cli.options import ReplaceOption, note, print_json, shared_options
from airrep.cli.running.once import OnceCommand, OneLineGroup, RecordedCommand
from airrep.errors import LM, AirRepError, ConfigError, many, need
from airrep.runtime.remote.places import here_only

INTERRUPTED = 130
"""Exit status of a command that the user interrupted with Ctrl-C, as in shells."""

own = typer.Typer()  # added like the others, so that help lists all commands in the order of a user's work


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"airrep {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Find the training examples, and groups of them, that made a fine-tuned language model behave as it does."""


@own.command("report")
def report_command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Directories that --out wrote. One page shows results of one kind: answers (top, group, what-if), "
            "checks (clean, audit, mix, prove), or evaluations (evaluate, compare).",
        ),
    ],
    out: Annotated[Path, "HTML page to write."],
    title: Annotated[str | None, Setting("Title of the page.")] = None,
    figures: Annotated[Path | None, Setting("For evaluations: also write each figure as SVG into this folder.")] = None,
    curve: Annotated[
        list[str] | None,
        Setting(
            "For evaluations: key of a tag (`airrep evaluate --tag key=NUMBER`). The report plots the measured values "
            "against this number."
        ),
    ] = None,
    join: Annotated[
        bool, Setting("true shows evaluations with equal queries, losses and --tag values in one table.")
    ] = False,
    replace: ReplaceOption = False,
) -> None:
    """Write one self-contained HTML page from results that were kept with --out."""
    from airrep.reports.sources import KINDS
    from airrep.runtime.artifacts import fetched, read_manifest

    folders = [fetched(run) for run in runs]
    if any(read_manifest(folder)["kind"] in KINDS for folder in folders):
        from airrep.reports.evaluations import write_evaluation_report

        write_evaluation_report(
            folders, out, figures=figures, curves=curve or (), join=join, title=title, replace=replace
        )
        note(f"{out}: written; open it in a browser" + (f"; figures in {figures}" if figures is not None else ""))
        return
    if figures is not None or curve or join:
        raise ConfigError("report: --set figures=, curve= and join= work only with evaluations. Leave them out.")
    from airrep.reports.results import write_report

    write_report(folders, out, title=title, replace=replace)
    note(f"{out}: written; open it in a browser")


@own.command("show")
def show_command(
    path: Annotated[
        Path,
        typer.Argument(metavar="WHAT", help="A directory that airrep wrote, 'methods', 'recipes', or a method's name."),
    ],
    example: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            help="An example of the index: its id, its place (train.jsonl:12) or 'row 12'. With `airrep show recipes`: "
            "the name of a recipe (list of methods).",
        ),
    ] = None,
    verify: Annotated[bool, "Check the bytes of every file against its checksum."] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest, or the example, as JSON.")] = False,
    k: Annotated[int, typer.Option("-k", min=0, help="Number of nearest examples to show beside an example.")] = 3,
    wide: Annotated[bool, "Print more of the nearest examples: raw scores and longer texts."] = False,
) -> None:
    """Show what a directory holds and which commands made it; or show one example, all methods, or
    all recipes (lists of methods).

    For an example, airrep also shows the nearest examples. For a method, it shows the settings."""
    if str(path) == "recipes" and not path.exists():
        _show_recipes(example, as_json=as_json)
        return
    chosen = example if str(path) == "methods" else None
    if not path.exists() and _show_methods(str(path), chosen, as_json=as_json):
        return
    if example is not None:
        if verify:
            raise ConfigError("show: --verify checks a whole directory, not one example. Leave out --verify or the ID.")
        _show_example(path, example, k, as_json=as_json, wide=wide)
        return
    from airrep.cli.running.history import read_history
    from airrep.cli.show.console import printable
    from airrep.labels.labels import holds_labels
    from airrep.lm.trainer_records.record import ABOUT
    from airrep.runtime.artifacts import fetched

    path = fetched(path, loose=True)
    if holds_labels(path):
        _show_labels(path, verify=verify, as_json=as_json)
    elif (path / ABOUT).is_file():
        _show_record(path, as_json=as_json)
    else:
        _show_artifact(path, verify=verify, as_json=as_json)
    for one in () if as_json else read_history(path):
        typer.echo(printable(f"made by: {one.line}"))


def _show_artifact(path: Path, *, verify: bool, as_json: bool) -> None:
    """Show the manifest of an artifact, and an evaluation's result too."""
    from airrep.cli.show.results import print_manifest
    from airrep.runtime.artifacts import check_digests, check_sizes, read_manifest

    manifest = read_manifest(path)
    (check_digests if verify else check_sizes)(path, manifest["files"])
    if as_json:
        print_json(manifest)
    else:
        print_manifest(path, manifest)
        if manifest["kind"] in ("evaluation", "comparison"):
            from airrep.cli.show.evaluations import print_result  # here, since it loads evaluation and reports

            print_result(path)
    if verify:
        _note_whole(path, manifest)


def _show_example(path: Path, name: str, k: int, *, as_json: bool, wide: bool) -> None:
    from airrep.answers.texts import find_row
    from airrep.cli.show.hits import example_to_dict, print_example
    from airrep.index.index import Index

    index = Index(path)
    row = find_row(index, name)
    if as_json:
        print_json(example_to_dict(index, row, k))
    else:
        print_example(index, row, k, wide)


def _show_labels(path: Path, *, verify: bool, as_json: bool) -> None:
    from airrep.cli.show.learning import print_labels
    from airrep.labels.labels import Labels

    labels = Labels(path)
    if as_json:
        print_json(labels.summary())
    else:
        print_labels(labels)
    if verify:
        labels.verify()
        _note_whole(path, labels.state)


def _show_record(path: Path, *, as_json: bool) -> None:
    from airrep.cli.show.learning import print_record
    from airrep.lm.trainer_records.record import read_training_record

    record = read_training_record(path)
    if as_json:
        jumps = [asdict(jump) for jump in record.jumps()]
        print_json({"about": dict(record.about), "jumps": jumps, "steps": record.to_dicts()})
    else:
        print_record(record)


def _note_whole(path: Path, manifest: Mapping[str, Any]) -> None:
    note(f"{path}: intact: {many(len(manifest['files']), 'file is', 'files are')} as the checksums in the manifest say")


def _show_recipes(name: str | None, *, as_json: bool) -> None:
    """Show a line for each recipe that ships, or the file of one."""
    from airrep.attributors.recipes import recipe_text, shipped_recipes

    if as_json:
        print_json({one: recipe_text(one) for one in shipped_recipes() if name in (None, one)})
    else:
        typer.echo(recipe_text(name), nl=False)


def _show_methods(name: str, chosen: str | None, *, as_json: bool) -> bool:
    """Show all methods, those of installed packages too, or one with its settings; False if the name is of neither."""
    from airrep.attributors.methods import METHODS, is_known, method_named, methods_of_packages
    from airrep.cli.show.results import print_methods, print_options

    if name != "methods" and not is_known(name):
        return False
    one = chosen if name == "methods" else name
    listed = [*METHODS.values(), *methods_of_packages()] if one is None else [method_named(one)]
    if as_json:
        print_json([method.to_dict() for method in listed])
        return True
    print_methods(listed)
    if one is not None:
        print_options(method_named(one))
    return True


@own.command("push")
def push_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A finished directory that airrep wrote.")],
    to: Annotated[str, typer.Argument(metavar="HUB", help="hf://owner/name, or hf://datasets/owner/name.")],
    licence: Annotated[str | None, "Licence to state on the card, such as apache-2.0 or cc-by-4.0."] = None,
    no_texts: Annotated[bool, "Push an index without its texts. Scores stay the same."] = False,
    evaluation: Annotated[
        str | None, Setting("Folder that `airrep evaluate --out` wrote for this index; the card shows its results.")
    ] = None,
    public: Annotated[bool, Setting("Make a new repository public instead of private.")] = False,
) -> None:
    """Push a directory to the Hugging Face Hub, with a card. After an interruption, run it again to go on.

    Log in first: hf auth login. Every command then takes hf://owner/name or hf://owner/name@revision like a directory.
    """
    from airrep.reports.pushing import local_models, push

    made = push(folder, to, licence=licence, texts=not no_texts, evaluation=evaluation, private=not public)
    card = "; its card stays as it is, because airrep did not write it" if made.kept_card else ""
    note(
        f"{to}: {many(made.sent, 'file')} pushed, {'private' if made.private else 'public'}{card}; this version is at:"
    )
    if local := local_models(folder):
        note(
            f"{to}: uses the model {local[0]}, which is only on this machine. Push the model too. On other machines, "
            "name its new place when you open the index, for example --set lm=hf://owner/model"
        )
    typer.echo(made.place.url)


@own.command("demo")
def demo_command(
    out: Annotated[Path, "Directory for what the demo makes."] = Path("airrep-demo"),
    learn: Annotated[
        bool, "Show how airrep learns from fine-tunes of a small LM, instead of the short demo. Takes about 5 minutes."
    ] = False,
    replace: ReplaceOption = False,
) -> None:
    """Try airrep on the data that it ships with. It needs no network and takes under two minutes."""
    from airrep.cli.demo import run_demo, run_learning_demo

    here = here_only(out, "the demo is made")
    if learn:
        need("airrep demo --learn", "lm", *LM)
        run_learning_demo(here / "learning")
    else:
        run_demo(here, replace=replace)


MODULES: Mapping[str, tuple[str, ...]] = {
    "index_commands": ("index", "append", "delete", "export"),
    "query_commands": ("top", "group", "what-if", "select", "serve", "mcp"),
    "question_commands": ("clean", "audit", "mix"),
    "app": ("report", "show", "push", "demo"),
    "running.history": ("rerun",),
    "prove_commands": ("prove",),
    "label_commands": ("sample", "label", "warmup"),
    "train_commands": ("train", "adapt"),
    "evaluate_commands": ("evaluate", "compare"),
}
"""The commands of each module, in the order of a user's work. One that is asked for is made alone, and its module alone
is loaded, as all of them together take longer than most answers."""
_NOT_RECORDED = ("app", "running.history")


def make_app(word: str | None = None) -> typer.Typer:
    """Return the program with only the named command, or with all commands if there is no such command."""
    app = typer.Typer(
        name="airrep",
        cls=OneLineGroup,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    alone = tuple(name for name, commands in MODULES.items() if word in commands)
    for name in alone or MODULES:
        for command in (own if name == "app" else import_module(f"airrep.cli.{name}").app).registered_commands:
            if not alone or command.name == word:
                made = copy(command)
                made.cls = OnceCommand if name in _NOT_RECORDED else RecordedCommand
                made.callback = shared_options(command.callback)  # type: ignore[arg-type]
                app.registered_commands.append(made)
    return app


def __dir__() -> list[str]:
    return sorted({*globals(), "app"})


def __getattr__(name: str) -> typer.Typer:
    if name != "app":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = made = make_app()
    return made


def main() -> None:
    """Run the command line; every expected failure is one line on stderr and exit status 1.

    If a reader of stdout stops early, such as ``head``, typer and rich end the command silently with status 1. SIGPIPE
    stays ignored; otherwise a browser that disconnects would end `airrep serve`, and a lost worker the command that
    waits for it.
    """
    # The interpreter's last collection would walk every object that torch made: 0.3 s of a cold `airrep top`.
    atexit.register(gc.freeze)
    gc.set_threshold(200_000)  # objects of modules stay: looking for circles among them took a tenth of it
    # Pydantic would look through all installed packages for plugins, of which airrep has none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        make_app(next((word for word in sys.argv[1:] if not word.startswith("-")), None))(prog_name="airrep")
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            note("airrep: interrupted. Run the same command again: it goes on from what it saved, or else starts over")
        raise
    except (AirRepError, OSError) as error:
        note(f"airrep: error: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
