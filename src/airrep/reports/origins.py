"""Origins of results' examples: data sets, licences, hashes, models, what was not recorded."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from airrep.index.results.citations import NOT_RECORDED, Citation, cite, unknown
from airrep.index.results.hits import Hit
from airrep.index.results.kinds import TopResult
from airrep.index.results.made import Made
from airrep.reports.tables import NOTHING, Cell, Line, Table, short

ROWS = 500
"""Examples that are listed, those of the greatest sums of scores."""
NAME = 80


def origin_tables(runs: Sequence[TopResult]) -> list[Table]:
    """Tables of the origin of all hits: shares of sources, licences and data sets, each example, the index.

    None where there are no hits.
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
    """How the score divides over the data sets, the sources and the licences."""
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
    """A line for each example."""
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
    """What was asked, and what it was made of; then what was not recorded."""
    rows = [("index", index)]
    if made is not None:
        rows += [(f"corpus of {part.rows:,} rows, SHA-256", part.fingerprint) for part in made.corpora]
        rows += [("data set of the Hub", one) for one in made.hub]
        rows += [("channel", one) for one in made.channels]
        rows += list(made.models.items())
        rows += [("files and settings of models", made.attributor), ("airrep", made.airrep or NOTHING)]
    else:
        rows.append(("corpus, models, channels", NOT_RECORDED))
    missing = unknown(cited) or "Of each example all was recorded."
    return Table.of_texts(("index", "what it was made of"), rows, caption=f"The index. {missing}")


def _told(value: str | None) -> str:
    return NOT_RECORDED if value is None else short(value, NAME)
