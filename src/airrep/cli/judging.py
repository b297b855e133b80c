"""Options of the commands that judge."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep.cli.options import JsonOption, OutputOptions, ReplaceOption, note, open_moved_index
from airrep.errors import ConfigError, need

if TYPE_CHECKING:
    from airrep.evaluation.result import Evaluation
    from airrep.index.index import Index

INDEXES = typer.Argument(
    metavar="INDEX...", help="Index directories, one row for each; NAME=INDEX says what its row is called."
)


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of an evaluation's output: format, directory, tags."""

    as_json: JsonOption = False
    run: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="RUN", help="Also write the evaluation here; one of the same inputs is shown again."
        ),
    ] = None
    tag: Annotated[list[str] | None, "What to call this, as key=value, such as role=tasks; may be repeated."] = None
    replace: ReplaceOption = False

    def deliver(
        self,
        request: Mapping[str, Any],
        make: "Callable[[], Evaluation]",
        print_made: "Callable[[Evaluation], None]",
        *,
        partial: bool = False,
    ) -> None:
        """Show the evaluation that is there already; or make one, write it if asked, and show it.

        The request is what decides it: fingerprints of indexes and labels, settings. Without *partial* one that was
        finished without what failed is made again, and replaced.
        """
        from airrep.evaluation.result import command_line

        need("airrep evaluate", "evaluation", "scipy")
        tags = parse_tags(self.tag)
        found = self._found(request)
        lacking = found is not None and not (found.complete or partial)
        if lacking:
            note(f"{self.run}: was finished without the fine-tunes that failed; goes on with these")
        OutputOptions(self.as_json, self.run, self.replace or lacking).find_or_make(
            lambda _: found,
            lambda: replace(make(), tags=tags, request=request, command=command_line(sys.argv[1:])),
            print_made,
            ", with these names and tags; --replace makes it again",
        )

    def _found(self, request: Mapping[str, Any]) -> "Evaluation | None":
        from airrep.evaluation.result import Evaluation, check_no_answers
        from airrep.runtime.artifacts.making import check_replaceable, real_path

        if self.run is None:
            return None
        if self.replace:
            check_replaceable(real_path(self.run), Evaluation.kind)
            return None
        if request["measure"] != "select":  # only that one resumes from the answers that lie in its directory
            check_no_answers(self.run)
        return Evaluation.find(self.run, request)


def parse_named(text: str) -> tuple[str, Path]:
    """The name and the path of ``NAME=INDEX``; a path alone, or one that exists with its =, is its own name."""
    name, equals, path = text.partition("=")
    if not equals or Path(text).exists():
        return text, Path(text)
    if not name or not path:
        raise ConfigError(f"'{text}': names no index; expected INDEX or NAME=INDEX. Correct it.")
    return name, Path(path)


def open_named(texts: Sequence[str], settings: Mapping[str, Any]) -> "list[tuple[str, Index]]":
    """Open indexes given as INDEX or NAME=INDEX, with ``NAME:key=value`` settings that are others now."""
    from airrep.evaluation.result import check_names

    paths = [parse_named(text) for text in texts]
    check_names([name for name, _ in paths])
    moved: dict[str, dict[str, Any]] = {name: {} for name, _ in paths}
    for text, value in settings.items():
        name = next((name for name in moved if text.startswith(f"{name}:")), None)
        if name is None:
            raise ConfigError(f"--set {text}: is of no index here; expected NAME:key=value. Name one as NAME=INDEX.")
        moved[name][text.removeprefix(f"{name}:")] = value
    return [(name, open_moved_index(path, moved[name])) for name, path in paths]


def parse_tags(texts: Sequence[str] | None) -> dict[str, str]:
    """Tags from ``key=value`` texts, each key once."""
    tags: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value):
            raise ConfigError(f"--tag {text}: is no tag; expected key=value, such as role=tasks. Correct it.")
        if key in tags:
            raise ConfigError(f"--tag {text}: '{key}' comes twice; expected each key once. Leave one out.")
        tags[key] = value
    return tags
