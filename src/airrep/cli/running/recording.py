"""Commands that record themselves in what they make."""

from contextlib import suppress
from typing import Any

from airrep.cli.running.once import OnceCommand
from airrep.errors import ArtifactError


class RecordedCommand(OnceCommand):
    """A command that adds itself to the history of the artifact which it made or changed."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; its line is written when it has ended well."""
        from airrep.cli.running import history  # here, since --help must load little
        from airrep.cli.running.steps import step_of

        step = step_of(ctx, _name(ctx))
        artifact = history.artifact_of(step)
        if artifact is None:
            return super().invoke(ctx)
        inputs, before = history.inputs_of(step), history.state_of(artifact)
        result = super().invoke(ctx)
        # A read-only artifact that was found finished stays as it is.
        with suppress(OSError, ArtifactError):
            history.record(artifact, step, inputs, changed=history.state_of(artifact) != before)
        return result


def _name(context: Any) -> str:
    """The name of a command, behind that of its group."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, str(context.info_name))
        context = context.parent
    return " ".join(names)
