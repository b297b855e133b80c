"""Build an index on several machines: build parts, then join them."""

import shutil
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from airrep.attributors.base import Attributor, OnProgress
from airrep.attributors.recipes import RecipeLike
from airrep.corpus.inputs import CorpusLike
from airrep.errors import AirRepError, ArtifactError, ConfigError, many
from airrep.index.building import BuildPlan, checked, has_shards, index_stage, planned, recalled, save_state
from airrep.index.encoding import seal_index, write_shards
from airrep.index.rows import READING, IndexRows
from airrep.index.shards import is_whole
from airrep.runtime.artifacts import check_digests, fetched, read_manifest, real_path, seal
from airrep.runtime.engine import Engine, Share
from airrep.runtime.metering import COSTS, FIT, append_cost
from airrep.runtime.publishing import new_place, writing
from airrep.runtime.ray_engine import make_engine
from airrep.runtime.stage import Stage, refuse_difference

KIND = "index-part"


def is_part(path: str | Path) -> bool:
    """Return whether a path or URL holds a part of an index."""
    try:
        return bool(read_manifest(fetched(path))["kind"] == KIND)
    except (AirRepError, OSError):
        return False


class IndexPart(NamedTuple):
    """A finished part of an index."""

    path: Path
    share: Share
    rows: int
    """Number of examples in the whole index."""
    shards: tuple[str, ...]
    """Names of the part's shards, in order."""
    lineage: Mapping[str, Any]
    """Fields of the whole index's manifest on its origin."""
    files: Mapping[str, Any]
    """Files of the part, with sizes and checksums."""

    @property
    def state(self) -> dict[str, str]:
        """Checksums of the files that hold what the method learnt from the corpus."""
        return {name: entry["sha256"] for name, entry in self.files.items() if name.startswith("state/")}


def open_part(path: str | Path) -> IndexPart:
    """Open a finished part (ArtifactError: there is none, or it was altered)."""
    folder = fetched(path)
    found = read_manifest(folder, KIND)
    share = Share.parse(found["share"], "--part")
    return IndexPart(folder, share, found["rows"], tuple(found["shards"]), found["lineage"], found["files"])


def build_part(
    train: CorpusLike,
    out: str | Path,
    share: str,
    method: str | Attributor | None = None,
    *,
    state: str | Path | None = None,
    recipe: RecipeLike | None = None,
    settings: Mapping[str, Any] | None = None,
    skip_invalid: bool = False,
    shard_rows: int | None = None,
    replace: bool = False,
    progress: OnProgress | None = None,
    engine: Engine | str | None = None,
) -> IndexPart:
    """Encode every n-th shard of an index, for :func:`airrep.index.sharing.join_parts`.

    Each part is given the whole corpus, and the method learns from all of it, so that all parts learn the same. If
    learning takes long, or if machines of several kinds would round differently, let one part learn, and give that
    part as *state* to the others.

    *share* is ``"i/n"``, the i-th of n parts; other arguments and errors are those of :func:`airrep.build_index`.
    ConfigError: there are fewer shards than parts.
    """
    mine, path = Share.parse(share, "--part"), real_path(out)
    method, train, shard_rows = checked(train, method, settings, shard_rows, skip_invalid, recipe)
    shards = -(-len(train) // shard_rows)
    if shards < mine.of:
        raise ConfigError(
            f"--part {mine}: {many(len(train), 'example makes', 'examples make')} only {many(shards, 'shard')} of "
            f"{shard_rows:,}, and each part needs at least one. Use fewer parts, or lower --set shard_rows=."
        )

    def stage_of(request: Mapping[str, Any]) -> Stage:
        asked = {**request, "share": str(mine)}
        return Stage(path, KIND, "a part made", asked, replace, has_shards, "an unfinished part of another index")

    if state is None:
        plan = planned(method, train, shard_rows, progress, stage_of)
    else:
        part, where = open_part(state), "Give another part, or leave --set state= out."
        if part.lineage["method"] != method.name:
            raise ArtifactError(f"{part.path}: was built with {part.lineage['method']}, not {method.name}. {where}")
        plan = recalled(method, train, shard_rows, part.path, part.files)
        refuse_difference(part.path, "a part of an index made", part.lineage["request"], plan.request, where)
    stage = stage_of(plan.request)
    if stage.finished() is None:
        _build(stage, plan, mine, progress, make_engine(engine))
    return open_part(path)


def _build(stage: Stage, plan: BuildPlan, share: Share, progress: OnProgress | None, engine: Engine | None) -> None:
    with stage.making() as partial:
        (partial / "shards").mkdir(exist_ok=True)
        append_cost(partial, FIT, plan.fit, examples=len(plan.train))
        save_state(partial, plan.attributor)
        shards = write_shards(
            partial, plan.attributor, plan.train, plan.shard_rows, share=share.part, progress=progress, engine=engine
        )
        content = {"request": stage.request, "share": str(share), "rows": len(plan.train), "shards": shards}
        seal(partial, KIND, {**content, "lineage": plan.lineage})


def join_parts(paths: Sequence[str | Path], out: str | Path) -> IndexRows:
    """Join all parts of an index into the index that one build would have made, to the byte.

    Parts stay as they are; their order does not matter. No model is loaded. An interrupted join resumes. ConfigError:
    no parts. ArtifactError: a part is missing, given twice, of another index, unfinished or altered; or something else
    is at *out*, or it cannot be written.
    """
    if not paths:
        raise ConfigError("append: no parts are given. Name all parts of the index.")
    parts = _in_order([open_part(path) for path in paths])
    stage = index_stage(real_path(out), parts[0].lineage["request"], False)
    if stage.finished() is None:
        _join(stage, parts)
    return IndexRows(stage.path)


def _in_order(parts: Sequence[IndexPart]) -> list[IndexPart]:
    """Sort the parts by number, after checking that they make one whole index."""
    first = parts[0]
    by_number: dict[int, IndexPart] = {}
    for part in parts:
        if part.share.of != first.share.of:
            raise ArtifactError(
                f"{part.path}: is part {part.share}, but {first.path} is part {first.share}. Name only parts with the "
                "same number after the slash."
            )
        refuse_difference(part.path, "a part of an index made", _compared(part), _compared(first), "Leave it out.")
        if part.state != first.state:
            raise ArtifactError(
                f"{part.path}: the numbers that its method learnt differ slightly from those in {first.path}, "
                f"because machines can round differently. Build this part again with: --set state={first.path}"
            )
        other = by_number.setdefault(part.share.number, part)
        if other is not part:
            raise ArtifactError(f"{part.path}: is part {part.share}, and so is {other.path}. Remove one of them.")
    missing = [str(number) for number in range(1, first.share.of + 1) if number not in by_number]
    if missing:
        raise ArtifactError(
            f"append: {len(missing)} of {first.share.of} parts are missing: "
            f"{', '.join(missing[:8])}{', …' if len(missing) > 8 else ''}. Make them with: airrep index … --part "
            f"{missing[0]}/{first.share.of}"
        )
    return [by_number[number] for number in sorted(by_number)]


def _compared(part: IndexPart) -> dict[str, Any]:
    """Return a part's lineage without the names and the number that versions give what they read differently."""
    reading = part.lineage.get(READING, {})
    kept = {name: value for name, value in reading.items() if name not in ("forms", "earlier_turns")}
    return {**part.lineage, READING: kept}


def _join(stage: Stage, parts: Sequence[IndexPart]) -> None:
    with stage.making() as partial, writing(stage.path):
        (partial / "shards").mkdir(exist_ok=True)
        shutil.rmtree(partial / "state", ignore_errors=True)
        (partial / COSTS).unlink(missing_ok=True)
        for part in parts:
            check_digests(part.path, part.files)
            for name in part.shards:
                target = partial / "shards" / name
                if not is_whole(target):  # an interrupted join may have copied it, or left it damaged
                    with new_place(target) as temporary:
                        shutil.copytree(part.path / "shards" / name, temporary)
            with (partial / COSTS).open("ab") as stream:
                stream.write((part.path / COSTS).read_bytes())
        if parts[0].state:
            shutil.copytree(parts[0].path / "state", partial / "state")
        # each part has every n-th shard
        rounds = zip_longest(*(part.shards for part in parts))
        seal_index(partial, parts[0].lineage, [name for name in chain.from_iterable(rounds) if name is not None])
