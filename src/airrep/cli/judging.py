"""Command-line options of the commands that judge."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep.cli.options import ReplaceOption, note, open_moved_index, print_json
from airrep.errors import ConfigError

if TYPE_CHECKING:
    from airrep.evaluation.result import Evaluation
    from airrep.index.index import Index

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
IndexesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="INDEX...", help="Index directories, one row for each; NAME=INDEX says what its row is called."
    ),
]
TagOption = Annotated[
    list[str] | None,
    typer.Option("--tag", help="What to call this, as key=value, such as role=tasks; may be repeated."),
]


@dataclass(frozen=True)
class Judging:
    """Where an evaluation goes, and what it is called."""

    as_json: JsonOption = False
    run: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="RUN", help="Also write the evaluation here; one of the same inputs is shown again."
        ),
    ] = None
    tag: TagOption = None
    replace: ReplaceOption = False

    def deliver(
        self,
        request: Mapping[str, Any],
        make: "Callable[[], Evaluation]",
        show: "Callable[[Evaluation], None]",
        *,
        partial: bool = False,
    ) -> None:
        """Show the evaluation that is there already; or make one, write it if asked, and show it.

        Args:
            request: what decides it: fingerprints of indexes and labels, settings.
            make: makes it; tags, command and request are added here.
            show: prints it.
            partial: whether one that was finished without what failed will do; if not, it is made again and replaced.

        Raises:
            ConfigError: a bad tag.
            ArtifactError: --out holds something else, or the answer to another request.
        """
        tags = parse_tags(self.tag)
        found = self._found(request)
        lacking = found is not None and not (found.complete or partial)
        if found is not None:
            self._note(lacking)
        if found is None or lacking:
            found = self._write(make(), tags, request, replacing=self.replace or lacking)
        if self.as_json:
            print_json(found.to_dict())
        else:
            show(found)

    def _found(self, request: Mapping[str, Any]) -> "Evaluation | None":
        from airrep.evaluation.result import KIND, check_no_answers, find_evaluation
        from airrep.runtime.artifacts import check_replaceable, real_path

        if self.run is None:
            return None
        if self.replace:
            check_replaceable(real_path(self.run), KIND)
            return None
        if request["measure"] != "select":
            check_no_answers(self.run)
        return find_evaluation(self.run, request)

    def _note(self, lacking: bool) -> None:
        if lacking:
            note(f"{self.run}: was finished without the fine-tunes that failed; goes on with these")
        else:
            note(f"{self.run}: was finished already, with these names and tags; --replace makes it again")

    def _write(
        self, made: "Evaluation", tags: Mapping[str, str], request: Mapping[str, Any], *, replacing: bool
    ) -> "Evaluation":
        from airrep.evaluation.result import command_line

        named = replace(made, tags=tags, request=request, command=command_line(sys.argv[1:]))
        if self.run is not None:
            named.write(self.run, replace=replacing)
            note(f"{self.run}: written")
        return named


def parse_named(text: str) -> tuple[str, Path]:
    """The name and the path of ``NAME=INDEX``; a path alone, or one that exists with its =, is its own name."""
    name, equals, path = text.partition("=")
    if not equals or Path(text).exists():
        return text, Path(text)
    if not name or not path:
        raise ConfigError(f"'{text}': names no index; expected INDEX or NAME=INDEX. Correct it.")
    return name, Path(path)


def open_named(texts: Sequence[str], settings: Sequence[str] | None = None) -> "list[tuple[str, Index]]":
    """Open indexes given as INDEX or NAME=INDEX.

    Args:
        texts: of each index.
        settings: ``NAME:key=value`` texts: settings of an index that are others now, such as where a model has moved.

    Raises:
        ConfigError: a setting that belongs to none of them.
        DataError: two of one name.
        ArtifactError: as for :class:`airrep.index.index.Index`.
    """
    from airrep.evaluation.result import check_names

    paths = [parse_named(text) for text in texts]
    check_names([name for name, _ in paths])
    moved: dict[str, list[str]] = {name: [] for name, _ in paths}
    for text in settings or ():
        name = next((name for name in moved if text.startswith(f"{name}:")), None)
        if name is None:
            raise ConfigError(f"--set {text}: is of no index here; expected NAME:key=value. Name one as NAME=INDEX.")
        moved[name].append(text.removeprefix(f"{name}:"))
    return [(name, open_moved_index(path, settings=moved[name])) for name, path in paths]


def parse_tags(texts: Sequence[str] | None) -> dict[str, str]:
    """Tags from ``key=value`` texts.

    Raises:
        ConfigError: one is something else, or a key comes twice.
    """
    tags: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value):
            raise ConfigError(f"--tag {text}: is no tag; expected key=value, such as role=tasks. Correct it.")
        if key in tags:
            raise ConfigError(f"--tag {text}: '{key}' comes twice; expected each key once. Leave one out.")
        tags[key] = value
    return tags
