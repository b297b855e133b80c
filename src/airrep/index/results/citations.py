"""Citations: training examples as records that others can look up, and as JSON-LD."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airrep._version import __version__
from airrep.corpus.corpus import Example, left_out
from airrep.errors import ConfigError, many
from airrep.index.results.result import Made

LICENSES = ("license", "licence", "licenses", "licences", "license_name", "rights")
"""Metadata fields that hold a licence, in any case, also inside an object; the first that an example has counts."""
NOT_RECORDED = "not recorded"
UNCHECKED, SAME = "not checked", "unchanged"
_PLACE = re.compile(r"(?P<name>.+?)(?::| (?:row|record|line|example) )(?P<line>\d+)", re.DOTALL)


@dataclass(frozen=True)
class Citation:
    """One training example as a record that can be looked up; values that were not recorded are None."""

    id: str
    row: int | None
    """Row number in the index; None if the example is no longer there."""
    dataset: str | None
    """File, or data set of the Hub, that the example was read from."""
    line: int | None
    """Line, row or record of the data set, from 1 on."""
    revision: str | None
    """Commit of the data set on the Hub."""
    corpus: str | None
    """SHA-256 over all rows of the corpus that the example was indexed with."""
    index: str
    """Fingerprint of the index."""
    source: str | None
    license: str | None
    sha256: str | None
    """SHA-256 over prompt, one NUL byte and response in UTF-8; None if the index has no texts."""
    query: str | None = None
    rank: int | None = None
    score: float | None = None
    check: str = UNCHECKED
    """Result of comparing the texts with the data: "not checked", "unchanged", or words for the difference."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the fields on origin and licence that were not recorded."""
        told = ("dataset", "line", "revision", "corpus", "source", "license", "sha256")
        return tuple(name for name in told if getattr(self, name) is None)


def text_hash(example: Example) -> str | None:
    """Return the SHA-256 of an example's texts; None if they were left out."""
    if example.prompt == "" and example.response == left_out(example.id):
        return None
    return hashlib.sha256(f"{example.prompt}\0{example.response}".encode()).hexdigest()


def cite(example: Example, row: int | None, index: str, made: Made | None) -> Citation:
    """Cite an example of an index; *made* is None for results of earlier versions, whose origin was not recorded."""
    found = _PLACE.fullmatch(example.place or "")
    name, line = (found["name"], int(found["line"])) if found else (example.place, None)
    dataset, revision = _on_hub(name, made) or (name, None)
    return Citation(
        id=example.id,
        row=row,
        dataset=dataset,
        line=line,
        revision=revision,
        corpus=None if made is None or row is None else made.corpus_of(row),
        index=index,
        source=example.source,
        license=license_of(example.metadata),
        sha256=text_hash(example),
    )


def _on_hub(name: str | None, made: Made | None) -> tuple[str, str] | None:
    """Return name and commit of the Hub's data set that a place's file name belongs to; None if that is ambiguous."""
    hub = [] if made is None else [one.rsplit("@", 1) for one in made.hub]
    whole = made is not None and len(made.corpora) == len(hub) == 1
    found = hub if whole else [one for one in hub if one[0].rpartition("/")[2] == name]
    return (found[0][0], found[0][1]) if len(found) == 1 else None


def license_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the licence in metadata, as it is written there; None without one."""
    for fields in (metadata, *(one for one in metadata.values() if isinstance(one, Mapping))):
        named = {str(name).casefold(): value for name, value in fields.items()}
        for name in LICENSES:
            if named.get(name) not in (None, "", [], {}):
                value = named[name]
                return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return None


def checked(citation: Citation, now: str | None, where: str) -> Citation:
    """Compare a citation with *now*, the hash of the texts that *where* has now."""
    if citation.sha256 is None or now is None or citation.check not in (SAME, UNCHECKED):
        return citation
    return replace(citation, check=SAME if now == citation.sha256 else f"the texts differ in {where}")


FIELDS: Mapping[str, tuple[str, str, str | None]] = {
    "id": ("sc:Text", "Id of the training example.", "sc:identifier"),
    "dataset": ("sc:Text", "File, or data set of the Hugging Face Hub.", "sc:isPartOf"),
    "line": ("sc:Integer", "Line, row or record of it, from 1 on.", None),
    "revision": ("sc:Text", "Commit of the Hub's data set.", "sc:version"),
    "corpus": ("sc:Text", "SHA-256 over all rows that were indexed together.", None),
    "index": ("sc:Text", "Fingerprint of the index.", None),
    "row": ("sc:Integer", "Row of the index, from 0 on.", "sc:position"),
    "source": ("sc:Text", "The example's field source.", None),
    "license": ("sc:Text", "The example's licence field, as its data have it.", "sc:license"),
    "sha256": ("sc:Text", "SHA-256 over prompt, one NUL byte and response in UTF-8.", "sc:sha256"),
    "query": ("sc:Text", "Id of the query that ranks it.", None),
    "rank": ("sc:Integer", "Its rank, from 1 on.", None),
    "score": ("sc:Float", "Its score.", None),
    "check": ("sc:Text", "Whether the texts are still the same.", None),
}
"""Fields of a citation: type, meaning, and the equivalent property of schema.org."""
_SET = "citations"
_TERMS = (
    "citeAs column containedIn equivalentProperty extract field fileProperty fileObject fileSet format includes "
    "isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate "
    "separator source subField transform isArray arrayShape"
)
CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "name": {"@container": "@language"},
    "description": {"@container": "@language"},
    **{term: f"cr:{term}" for term in _TERMS.split()},
}
"""JSON-LD context of Croissant 1.1."""


def as_croissant(citations: Sequence[Citation]) -> dict[str, Any]:
    """Describe citations as a Croissant data set, whose record set holds them.

    ConfigError: there are no citations.
    """
    if not citations:
        raise ConfigError("citations is empty. Name at least one example.")
    digest = hashlib.sha256("\n".join(f"{one.index} {one.id} {one.sha256}" for one in citations).encode()).hexdigest()
    sentences = (f"{many(len(citations), 'citation')} of training examples.", unknown(citations))
    return {
        "@context": dict(CONTEXT),
        "@type": "sc:Dataset",
        "name": f"citations-{digest[:12]}",
        "description": " ".join(filter(None, sentences)),
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "identifier": f"sha256:{digest}",
        "creator": {"@type": "sc:Organization", "name": f"airrep {__version__}"},
        "isBasedOn": list(_sources(citations)),
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": _SET,
                "name": _SET,
                "description": "One record for each training example; null means not recorded.",
                "field": [_field(name, *one) for name, one in FIELDS.items()],
                "data": [{f"{_SET}/{name}": getattr(one, name) for name in FIELDS} for one in citations],
            }
        ],
    }


def _field(name: str, kind: str, meaning: str, same: str | None) -> dict[str, Any]:
    named = {"@type": "cr:Field", "@id": f"{_SET}/{name}", "name": name, "description": meaning, "dataType": kind}
    return named if same is None else {**named, "equivalentProperty": same}


def _sources(citations: Iterable[Citation]) -> Iterator[dict[str, Any]]:
    """Yield the cited data sets in the terms of schema.org."""
    licenses: dict[tuple[str | None, ...], set[str]] = {}
    for one in citations:
        told = licenses.setdefault((one.dataset, one.revision, one.corpus), set())
        told |= set() if one.license is None else {one.license}
    for (dataset, revision, corpus), found in licenses.items():
        named: dict[str, Any] = {"@type": "sc:Dataset", "name": dataset or NOT_RECORDED}
        named |= {"license": sorted(found)} if found else {}
        if revision is not None:
            named |= {"version": revision, "url": f"https://huggingface.co/datasets/{dataset}/tree/{revision}"}
        yield named if corpus is None else {**named, "identifier": f"sha256:{corpus}"}


def unknown(citations: Iterable[Citation]) -> str:
    """Write a sentence on what was not recorded, with numbers of examples; empty if everything was."""
    counts = Counter(name for one in citations for name in one.missing)
    return f"Not recorded: {', '.join(f'{name} ({count:,})' for name, count in counts.items())}." if counts else ""
