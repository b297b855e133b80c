"""Join the parts of an index."""

import shutil
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path

from airrep.errors import ArtifactError, ConfigError
from airrep.index.building import index_stage
from airrep.index.rows import IndexRows
from airrep.index.sealing import seal_index
from airrep.index.shards import is_whole
from airrep.index.sharing.parts import IndexPart, open_part
from airrep.runtime.artifacts.making import real_path
from airrep.runtime.artifacts.manifests import check_digests
from airrep.runtime.metering import COSTS
from airrep.runtime.publishing import new_place, writing
from airrep.runtime.stage import Stage, refuse_difference


def join_parts(paths: Sequence[str | Path], out: str | Path, *, replace: bool = False) -> IndexRows:
    """Join all parts of an index into the index that one build would have made, to the byte.

    Parts stay as they are; their order does not matter. No model is loaded. An interrupted join resumes.

    Args:
        paths: finished parts, all of one index.
        out: the directory to make.
        replace: replace an index that is there and differs.

    Raises:
        ConfigError: no parts.
        ArtifactError: a part is missing, there twice, of another index, unfinished or altered; or something else is at
            *out*, or it cannot be written.
    """
    if not paths:
        raise ConfigError("append: there are no parts; expected all of an index. Name them.")
    parts = _in_order([open_part(path) for path in paths])
    stage = index_stage(real_path(out), parts[0].lineage["request"], replace)
    if stage.finished() is None:
        _join(stage, parts)
    return IndexRows(stage.path)


def _in_order(parts: Sequence[IndexPart]) -> list[IndexPart]:
    """The parts by number, once they are known to make one whole index."""
    first = parts[0]
    by_number: dict[int, IndexPart] = {}
    for part in parts:
        if part.share.of != first.share.of:
            raise ArtifactError(
                f"{part.path}: is part {part.share}, but {first.path} is {first.share}; expected parts of one cut. "
                "Leave one out, or build it again."
            )
        refuse_difference(part.path, "a part of an index made", part.lineage, first.lineage, "Leave it out.")
        if part.state != first.state:
            raise ArtifactError(
                f"{part.path}: its method learnt something else from the same corpus than that of {first.path}, as "
                f"machines round. Build it again with: --state {first.path}"
            )
        other = by_number.setdefault(part.share.number, part)
        if other is not part:
            raise ArtifactError(f"{part.path}: is part {part.share}, as {other.path} is. Leave one out.")
    missing = [str(number) for number in range(1, first.share.of + 1) if number not in by_number]
    if missing:
        raise ArtifactError(
            f"append: of {first.share.of} parts, {len(missing)} are missing: {', '.join(missing[:8])}"
            f"{', …' if len(missing) > 8 else ''}. Make them with: airrep index … --shard {missing[0]}/{first.share.of}"
        )
    return [by_number[number] for number in sorted(by_number)]


def _join(stage: Stage, parts: Sequence[IndexPart]) -> None:
    with stage.making() as partial, writing(stage.path):
        (partial / "shards").mkdir(exist_ok=True)
        shutil.rmtree(partial / "state", ignore_errors=True)
        (partial / COSTS).unlink(missing_ok=True)
        for part in parts:
            check_digests(part.path, part.files)
            for name in part.shards:
                _copy_shard(part.path / "shards" / name, partial / "shards" / name)
            with (partial / COSTS).open("ab") as stream:
                stream.write((part.path / COSTS).read_bytes())
        if parts[0].state:
            shutil.copytree(parts[0].path / "state", partial / "state")
        # each part has every n-th shard
        rounds = zip_longest(*(part.shards for part in parts))
        seal_index(partial, parts[0].lineage, [name for name in chain.from_iterable(rounds) if name is not None])


def _copy_shard(source: Path, target: Path) -> None:
    """Copy a shard, unless an interrupted join has; it has its name only when it is whole."""
    if is_whole(target):
        return
    with new_place(target, replace=True) as temporary:  # instead of a damaged one that an interrupted join left
        shutil.copytree(source, temporary)
