"""Files that the steps of a config made, told beside it."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from airrep.cli.running.history import named_by, still_has
from airrep.cli.running.steps import Step
from airrep.errors import ArtifactError
from airrep.runtime.publishing.files import append_line


class MadeFiles:
    """What steps left that is no artifact: selections, pages, exports, lists."""

    def __init__(self, config: Path) -> None:
        """The record of a config lies beside it, as ``.NAME.done.jsonl``; deleted, steps run again."""
        self._path = (config.parent / f".{config.name}.done.jsonl").absolute()

    def has(self, step: Step) -> bool:
        """Whether the step made files, and they and its inputs are as they were then."""
        wanted, named = step.to_dict(), named_by(step)
        return any(line["step"] == wanted and still_has(named, line["named"]) for line in self._lines())

    def record(self, step: Step, before: set[str]) -> None:
        """Note what a step made, if its options name something that was not there before.

        Raises:
            ArtifactError: the record cannot be written.
        """
        named = named_by(step)
        if not set(named) - before:
            return
        try:
            append_line(self._path, json.dumps({"step": step.to_dict(), "named": named}))
        except ArtifactError as error:
            raise ArtifactError(f"{error} Or put the config into a folder of your own.") from error

    def _lines(self) -> Iterator[Any]:
        """What was recorded; a line that an interruption cut, or that somebody changed, tells nothing."""
        try:
            lines = self._path.read_bytes().split(b"\n")
        except OSError:
            return
        for line in lines:
            with suppress(ValueError, RecursionError):
                found = json.loads(line)
                if isinstance(found, dict) and isinstance(found.get("named"), dict) and "step" in found:
                    yield found
