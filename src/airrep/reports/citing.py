"""Citations of training examples, and tables of where the examples come from."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from airrep.answers.reading import read_result
from airrep.answers.together import SetResult
from airrep.corpus.corpus import Corpus
from airrep.corpus.originals import listed_examples
from airrep.errors import ConfigError, many
from airrep.index.results.citations import NOT_RECORDED, Citation, checked, cite, text_hash, unknown
from airrep.index.results.hits import Hit
from airrep.index.results.kinds import TopResult
from airrep.index.results.result import Made, made_of
from airrep.index.rows import IndexRows
from airrep.reports.tables import NOTHING, Cell, Line, Table, short
from airrep.runtime.artifacts import is_made

MOST = 100_000
"""Most citations in one document, which is made in memory."""


def citations(
    index: IndexRows, only: str | Path | None = None, where: str | None = None, data: Corpus | None = None
) -> list[Citation]:
    """Return citations of examples, compared with the index and, if given, with the current data.

    Args:
        index: the index that the examples are in; no model is loaded.
        only: a result of top, with or without ``--aggregate``; or a file of examples, as select, clean, mix and
            ``top --json`` write. None: all examples of the index.
        where: a filter; only examples that match it are cited.
        data: the data that the index was made from, read again.

    Raises:
        ConfigError: both *only* and *where*, a result without hits, or too many examples or none.
        DataError, ArtifactError: *only* cannot be read.
    """
    if only is not None and where is not None:
        raise ConfigError("citations: --only and --where cannot be combined. Remove one of the two.")
    if only is None:
        rows = np.flatnonzero(index.live) if where is None else index.check_rows(where)
        made = made_of(index.manifest)
        _check_count(len(rows))
        pairs = zip(index.examples(rows), rows.tolist(), strict=True)
        found = [cite(example, row, index.fingerprint, made) for example, row in pairs]
    elif is_made(Path(only)):
        found = list(_of_result(index, only))
    else:
        found = list(_of_file(index, only))
    _check_count(len(found))
    return found if data is None else _against(found, data)


def _check_count(count: int) -> None:
    if not 0 < count <= MOST:
        raise ConfigError(
            f"citations: {count:,} examples are selected, but the number must be 1 to {MOST:,}. Change --where or "
            "--only."
        )


def _of_result(index: IndexRows, path: str | Path) -> Iterator[Citation]:
    result = read_result(path)
    if isinstance(result, TopResult):
        hits = [(entry.query.id, hit.rank, hit.score, hit.example) for entry in result.queries for hit in entry.hits]
    elif isinstance(result, SetResult):
        hits = [("all queries", one.rank, one.score, one.example) for one in result.hits]
    else:
        raise ConfigError(f"{path}: holds a result of kind '{result.kind}'. Give a result that `airrep top` wrote.")
    rows = index.find(example.id for *_, example in hits)
    made = result.provenance.made or made_of(index.manifest)
    for query, rank, score, example in hits:
        row = rows.get(example.id)
        told = replace(cite(example, row, result.provenance.index, made), query=query, rank=rank, score=score)
        yield _same(told, index)


def _same(citation: Citation, index: IndexRows) -> Citation:
    if citation.row is None:
        return replace(citation, check="it is no longer in the index")
    return checked(citation, text_hash(index.example(citation.row)), "the index")


def _of_file(index: IndexRows, path: str | Path) -> Iterator[Citation]:
    """Yield citations of the examples listed in a file, as they are in the index."""
    named = dict(listed_examples(path))
    rows, made = index.find(named), made_of(index.manifest)
    for id_, texts in named.items():
        if id_ not in rows:
            raise ConfigError(
                f"{path}: names the example '{id_}', which {index.path} does not contain. Correct the file, or give "
                "the right index."
            )
        example = index.example(rows[id_])
        found = cite(example, rows[id_], index.fingerprint, made)
        if texts is not None and found.sha256 is not None:
            same = found.sha256.startswith(texts)
            found = checked(found, found.sha256 if same else texts, str(path))
        yield found


def _against(cited: list[Citation], data: Corpus) -> list[Citation]:
    """Compare citations with the examples that have the same ids in the current data."""
    wanted = {one.id for one in cited}
    now = {one.id: text_hash(one) for one in data if one.id in wanted}
    told = []
    for one in cited:
        if one.id not in now and one.sha256 is not None:
            told.append(replace(one, check=f"{one.check}; the data have no example with this id"))
        else:
            told.append(checked(one, now.get(one.id), "the data"))
    return told


ROWS = 500
"""Most examples listed, those with the largest sums of scores."""
NAME = 80


def origin_tables(runs: Sequence[TopResult]) -> list[Table]:
    """Return tables of the origin of all hits: shares of sources, licences and data sets, each example, the index.

    The list is empty if there are no hits.
    """
    hits = [(run, hit) for run in runs for entry in run.queries for hit in entry.hits]
    if not hits:
        return []
    cited = {hit.row: cite(hit.example, hit.row, run.provenance.index, run.provenance.made) for run, hit in hits}
    sums: dict[int, float] = defaultdict(float)
    for _, hit in hits:
        sums[hit.row] += max(hit.score, 0.0)
    total = sum(sums.values())
    shares = {row: one / total if total else 0.0 for row, one in sums.items()}
    made = next((run.provenance.made for run in runs if run.provenance.made is not None), None)
    return [
        *_shares(cited, shares),
        _examples(cited, shares, [hit for _, hit in hits]),
        _index(runs[0].provenance.index, made, cited.values()),
    ]


def _shares(cited: Mapping[int, Citation], shares: Mapping[int, float]) -> Iterator[Table]:
    """Yield tables of the score's shares by data set, source and licence."""
    kinds: Mapping[str, Callable[[Citation], str | None]] = {
        "data set": lambda one: one.dataset,
        "source": lambda one: one.source,
        "licence": lambda one: one.license,
    }
    for kind, of in kinds.items():
        found: dict[str, list[float]] = defaultdict(list)
        for row, one in cited.items():
            found[_told(of(one))].append(shares[row])
        ordered = sorted(found.items(), key=lambda pair: (-sum(pair[1]), pair[0]))
        rows = ((name, f"{len(own):,}", f"{sum(own):.1%}") for name, own in ordered)
        yield Table.of_texts((kind, "examples", "share of the score"), rows, caption=f"These examples by {kind}.")


def _examples(cited: Mapping[int, Citation], shares: Mapping[int, float], hits: Iterable[Hit]) -> Table:
    ids = {hit.row: hit.example.place for hit in hits}
    ordered = sorted(cited.values(), key=lambda one: -shares[one.row or 0])
    lines = [
        Line(
            Cell(short(one.id, NAME), f"row {one.row:,}"),
            (
                Cell(_told(ids[one.row or 0])),
                Cell(_told(one.revision)),
                Cell(_told(one.source)),
                Cell(_told(one.license)),
                Cell(f"{shares[one.row or 0]:.1%}"),
                Cell(_told(one.sha256)),
            ),
        )
        for one in ordered[:ROWS]
    ]
    more = f" The first {ROWS:,} of {len(ordered):,}." if len(ordered) > ROWS else ""
    columns = ("example", "place", "revision", "source", "licence", "share", "SHA-256 of prompt, NUL and response")
    return Table("", columns, tuple(lines), f"Each example.{more}", words=True)


def _index(index: str, made: Made | None, cited: Iterable[Citation]) -> Table:
    """Return the table of the index and the data and models behind it; the caption says what was not recorded."""
    rows = [("index", index)]
    if made is not None:
        rows += [(f"corpus of {many(part.rows, 'row')}, SHA-256", part.fingerprint) for part in made.corpora]
        rows += [("data set of the Hub", one) for one in made.hub]
        rows += [("channel", one) for one in made.channels]
        rows += list(made.models.items())
        rows += [("files and settings of models", made.attributor), ("airrep", made.airrep or NOTHING)]
    else:
        rows.append(("corpus, models, channels", NOT_RECORDED))
    missing = unknown(cited) or "Everything was recorded for each example."
    return Table.of_texts(("index", "what it was made of"), rows, caption=f"The index. {missing}")


def _told(value: str | None) -> str:
    return NOT_RECORDED if value is None else short(value, NAME)
