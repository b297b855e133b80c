"""Citations of an index's examples: of results, of files of examples, of a filter."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from airrep.answers.reading import read_result
from airrep.answers.together import SetResult
from airrep.corpus.corpus import Corpus
from airrep.corpus.originals import listed_examples
from airrep.errors import ConfigError
from airrep.index.results.citations import Citation, checked, cite, text_hash
from airrep.index.results.kinds import TopResult
from airrep.index.results.made import made_of
from airrep.index.rows import IndexRows
from airrep.runtime.artifacts.manifests import is_made

MOST = 100_000
"""Citations of one document, which is made in memory."""


def citations(
    index: IndexRows, only: str | Path | None = None, where: str | None = None, data: Corpus | None = None
) -> list[Citation]:
    """Citations of examples, each compared with the index, and with data as they are now if they are given.

    Args:
        index: the index that was asked; no model is needed.
        only: a result of top, with or without ``--aggregate``; or a file of examples with ids, as select, clean and mix
            write. None: all examples of the index.
        where: a filter; of all examples only those that fulfil it.
        data: what the index was made from, read again.

    Raises:
        ConfigError: both *only* and *where*, a result without hits, or too many examples or none.
        DataError, ArtifactError: *only* cannot be read.
    """
    if only is not None and where is not None:
        raise ConfigError("citations: expected --only or --where. Leave one out.")
    if only is None:
        rows, made = index.where(where), made_of(index.manifest)
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
        raise ConfigError(f"citations: are {count:,}; expected 1 to {MOST:,}. Give another --where or --only.")


def _of_result(index: IndexRows, path: str | Path) -> Iterator[Citation]:
    result = read_result(path)
    if isinstance(result, TopResult):
        hits = [(entry.query.id, hit.rank, hit.score, hit.example) for entry in result.queries for hit in entry.hits]
    elif isinstance(result, SetResult):
        hits = [("all queries", one.rank, one.score, one.example) for one in result.hits]
    else:
        raise ConfigError(f"{path}: is of kind {result.kind}; expected a result of top. Give one.")
    rows = index.find(example.id for *_, example in hits)
    made = result.provenance.made or made_of(index.manifest)
    for query, rank, score, example in hits:
        row = rows.get(example.id)
        told = replace(cite(example, row, result.provenance.index, made), query=query, rank=rank, score=score)
        yield _same(told, index)


def _same(citation: Citation, index: IndexRows) -> Citation:
    """The citation of a result, compared with what the index has by now."""
    if citation.row is None:
        return replace(citation, check="it is no longer in the index")
    return checked(citation, text_hash(index.example(citation.row)), "the index")


def _of_file(index: IndexRows, path: str | Path) -> Iterator[Citation]:
    """Citations of the examples of a file, as the index has them."""
    named = dict(listed_examples(path))
    rows, made = index.find(named), made_of(index.manifest)
    for id_, texts in named.items():
        if id_ not in rows:
            raise ConfigError(f"{path}: the index has no example '{id_}'; expected those of {index.path}. Correct it.")
        example = index.example(rows[id_])
        found = cite(example, rows[id_], index.fingerprint, made)
        if texts is not None and found.sha256 is not None:
            same = found.sha256.startswith(texts)
            found = checked(found, found.sha256 if same else texts, str(path))
        yield found


def _against(cited: list[Citation], data: Corpus) -> list[Citation]:
    """Citations, compared with the examples that data have now under their ids."""
    wanted = {one.id for one in cited}
    now = {one.id: text_hash(one) for one in data if one.id in wanted}
    told = []
    for one in cited:
        if one.id not in now and one.sha256 is not None:
            told.append(replace(one, check=f"{one.check}; the data have no example with this id"))
        else:
            told.append(checked(one, now.get(one.id), "the data"))
    return told
