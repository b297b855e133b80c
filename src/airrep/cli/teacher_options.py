"""Options of `airrep train` that are about its teacher."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep.cli.options import Reading, note, open_index

if TYPE_CHECKING:
    from airrep.labels.instance import LabelledInstance
    from airrep.labels.teaching import TeacherSettings, Teaching


@dataclass(frozen=True)
class TeacherOptions:
    """Which index teaches, and how."""

    teacher: Annotated[
        Path | None,
        typer.Option(metavar="INDEX", help="Learn first from the group scores that an index gives random subsets."),
    ] = None
    teacher_steps: Annotated[int | None, typer.Option(help="Most steps on these (500).")] = None
    teacher_sizes: Annotated[
        str | None, typer.Option(help="Sizes of these subsets, such as 1,10,100 (100); 1 ranks single examples.")
    ] = None
    teacher_instances: Annotated[int | None, typer.Option(help="Draws of queries and subsets from the index (20).")] = (
        None
    )
    teacher_queries: Annotated[
        str | None, typer.Option(help="Where the teacher's queries come from, when not from the index.")
    ] = None
    teacher_pool: Annotated[str | None, typer.Option(help="How the teacher pools; its method's own if not given.")] = (
        None
    )
    teacher_temperature: Annotated[float | None, typer.Option(help="Of the teacher's attention.")] = None

    @property
    def settings(self) -> dict[str, Any]:
        """Those that are settings, by their names there."""
        return {name: value for name, value in vars(self).items() if name not in ("teacher", "teacher_queries")}

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse to ask a teacher that is none.

        Raises:
            ConfigError: something is set, here or among the teacher's *settings*, and there is no teacher.
        """
        from airrep.errors import ConfigError

        asked = [*settings, *(["queries"] if self.teacher_queries else [])]
        if self.teacher is None and asked:
            raise ConfigError(f"teacher_{asked[0]}: is set, and there is no teacher. Give an index with --teacher.")

    def teach(
        self, settings: "TeacherSettings", reading: Reading, unseen: Sequence["LabelledInstance"]
    ) -> "Teaching | None":
        """The teacher's labels; None without a teacher. Nothing of *unseen* is among them."""
        if self.teacher is None:
            return None
        from airrep.cli.show.console import Meter
        from airrep.labels.teacher import teach
        from airrep.runtime.train_distributed import is_first_process

        queries = None if self.teacher_queries is None else reading.read(self.teacher_queries)
        tell = note if is_first_process() else None
        with Meter("the teacher's queries") as meter:
            index = open_index(self.teacher)
            return teach(index, settings, queries=queries, unseen=unseen, tell=tell, progress=meter)


NO_TEACHER = TeacherOptions()
