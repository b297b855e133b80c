"""Small artifacts that are there already, found by request."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from airrep.errors import ConfigError
from airrep.labels.instance import LabelledInstance
from airrep.runtime import artifacts
from airrep.runtime.artifacts import check_digests, check_replaceable, real_path


def identity(instance: LabelledInstance) -> str:
    """64 hex digits over the examples, subsets and losses of an instance."""
    found = sha256(f"{instance.train.fingerprint} {instance.queries.fingerprint}".encode())
    for array in (instance.subsets.rows, instance.subsets.offsets, instance.losses):
        found.update(f" {array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def distinct(instances: Sequence[LabelledInstance]) -> dict[str, str]:
    """Names of instances by their :func:`identity`, in order.

    Raises:
        ConfigError: two have equal content, whatever their names: what they say would count twice.
    """
    found: dict[str, str] = {}
    for instance in instances:
        content = identity(instance)
        if content in found:
            raise ConfigError(
                f"instances {found[content]} and {instance.name}: have the same examples, subsets and losses, which "
                "would count twice; expected each once. Leave one out."
            )
        found[content] = instance.name
    return found


def find_finished(
    out: Path, kind: str, made: str, request: Mapping[str, Any], *, replace: bool
) -> Mapping[str, Any] | None:
    """The manifest of an artifact that answers the same request; None if it is still to be made.

    Args:
        out: where it is, or is to be.
        kind: of artifact.
        made: what it is, such as ``"a stack made"``.
        request: what decides its content, as its manifest has it under ``request``.
        replace: make it anew in any case.

    Raises:
        ArtifactError: something else is there, or it was altered.
    """
    path = real_path(out)
    if replace or not path.exists():
        check_replaceable(path, kind)
        return None
    manifest = artifacts.find_finished(path, kind, made, request)
    if manifest is not None:
        check_digests(path, manifest["files"])
    return manifest
