"""Indexes, labelled instances and evaluations as a program gives them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from airrep.errors import ConfigError, need
from airrep.evaluation.result import Evaluation, read_evaluation
from airrep.index.index import Index, open_index
from airrep.labels.instance import LabelledInstance, distinct

IndexesLike: TypeAlias = Any
"""Several indexes or their paths, each with its name as a pair ``(name, index)`` or alone; or one, alone."""
InstancesLike: TypeAlias = Any
"""Several :class:`LabelledInstance`, or one."""
EvaluationsLike: TypeAlias = Any
"""Several evaluations or their paths, each with its name as a pair ``(name, evaluation)`` or alone; or one, alone."""


def named_indexes(
    indexes: IndexesLike, where: str, names: Sequence[str] | str | None = None
) -> list[tuple[str, Index]]:
    """Indexes with the names of their rows: *names*, their own in pairs, or their paths.

    Raises:
        ConfigError: something else is given, or other than one name for each.
        ArtifactError: there is no index at a path.
    """
    need(f"airrep {where}", "evaluation", "scipy")
    expected = "indexes, their paths, or pairs (name, index)"
    found: list[tuple[str, Index]] = []
    for name, one in map(_pair, _several(indexes, Index, f"{where}: indexes", expected)):
        index = open_index(one) if isinstance(one, str | Path) else one
        if not isinstance(index, Index):
            raise _wrong(f"{where}: indexes", "holds", index, expected)
        found.append((name or str(index.path if index is one else one), index))
    if names is None:
        return found
    chosen = [names] if isinstance(names, str) else list(names)
    if len(chosen) != len(found):
        raise ConfigError(
            f"{where}: there are {len(chosen)} names for {len(found)} indexes; expected one for each. Correct names."
        )
    return [(name, index) for name, (_, index) in zip(chosen, found, strict=True)]


def labelled_instances(instances: InstancesLike, where: str) -> list[LabelledInstance]:
    """Check that the arguments are labelled instances.

    Raises:
        ConfigError: something else is given, or two of one name or content.
    """
    expected = "labelled instances: airrep.open(PATH).instances(TRAIN)"
    found = _several(instances, LabelledInstance, f"{where}: instances", expected)
    for one in found:
        if not isinstance(one, LabelledInstance):
            raise _wrong(f"{where}: instances", "holds", one, expected)
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:  # results are kept, and compared, by the names
        distinct(found)  # which says more of an instance that was given twice
        raise ConfigError(
            f"{where}: two instances are named {twice}; expected different names. Rename those of one directory, as "
            "by dataclasses.replace(one, name=f'a/{one.name}')."
        )
    return found


def named_evaluations(runs: EvaluationsLike, where: str) -> list[tuple[str, Evaluation]]:
    """Evaluations with names for errors: their own in pairs, their paths, or numbers.

    Raises:
        ConfigError: something else is given.
        ArtifactError: there is no evaluation at a path.
    """
    need(f"airrep {where}", "evaluation", "scipy")
    expected = "evaluations, their paths, or pairs (name, evaluation)"
    found: list[tuple[str, Evaluation]] = []
    for number, (name, one) in enumerate(map(_pair, _several(runs, Evaluation, f"{where}: runs", expected)), 1):
        path = isinstance(one, str | Path)
        run = read_evaluation(one) if path else one
        if not isinstance(run, Evaluation):
            raise _wrong(f"{where}: runs", "holds", run, expected)
        found.append((name or (str(one) if path else f"evaluation {number}"), run))
    return found


def _several(given: Any, kind: type, where: str, expected: str) -> list[Any]:
    """Make a list of an argument; one object of the kind, or a path, becomes a list of one."""
    if isinstance(given, (kind, str, Path)):
        return [given]
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise _wrong(where, "is", given, expected)
    return list(given)


def _pair(one: Any) -> tuple[str, Any]:
    """A pair of name and thing; of a thing alone the name is empty."""
    return one if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) else ("", one)


def _wrong(where: str, verb: str, found: Any, expected: str) -> ConfigError:
    return ConfigError(f"{where} {verb} a {type(found).__name__}; expected {expected}. Give a list of these.")
