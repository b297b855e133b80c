"""The base of all answers: a JSON form, written and read back."""

from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from airrep.errors import DataError
from airrep.index.frames import Shown
from airrep.index.results.forms import first_problem
from airrep.index.results.kinds import RESULTS
from airrep.index.results.provenance import Provenance
from airrep.runtime.artifacts.checks import read_json
from airrep.runtime.artifacts.digests import canonical_json
from airrep.runtime.artifacts.making import new_artifact
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.artifacts.urls import fetched
from airrep.runtime.publishing.files import write_file

PREDICTION = "Scores are predictions of what fine-tuning does, not proof of it."
"""Told with every answer."""


class Answer(Shown):
    """An answer to one question, a frozen dataclass: its JSON form has the same fields, and the kind."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=False, ser_json_inf_nan="constants")
    kind: ClassVar[str]
    note: ClassVar[str] = PREDICTION
    """Told with the answer."""
    provenance: Provenance

    def summary(self) -> str:
        shown = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, tuple | dict):
                shown.append(f"{len(value):,} {field.name}")
            elif isinstance(value, str | int):
                shown.append(f"{field.name}={value!r}")
        return ", ".join(shown)

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON values; the layout is in docs/answers.md."""
        values: dict[str, Any] = _form(type(self)).dump_python(self, mode="json")
        return {"kind": self.kind, **values}

    def save(self, out: str | Path, *, replace: bool = False) -> Path:
        """Write the answer as an artifact.

        Raises:
            ArtifactError: *out* exists and *replace* is false, or it cannot be written.
        """
        path = Path(out)
        with new_artifact(path, self.kind, {"provenance": asdict(self.provenance)}, replace=replace) as folder:
            write_file(folder / RESULTS, canonical_json(self.to_dict()))
        return path

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read an answer of this kind that was written as an artifact, after checking its bytes.

        Raises:
            ArtifactError: another kind, unfinished or altered.
            DataError: it lacks something, or holds what an answer cannot.
        """
        folder = fetched(path)
        value = read_json(folder, read_manifest(folder, cls.kind), RESULTS)
        try:
            found: Self = _form(cls).validate_python(value)
        except ValidationError as error:
            raise DataError(
                f"{folder}: is not the form of {cls.kind}: {first_problem(error)}. Run it again."
            ) from error
        return found


@cache
def _form(kind: type[Answer]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
