#!/usr/bin/env bash
# The guess: after rows are deleted, a search by words ranks and scores the rest as a new index of the rest does.
#
# What happens: a deleted row is no longer returned, and `num_docs` does not count it. But BM25 weighs each word by the
# number of rows that hold it, and there tantivy counts the deleted rows too. They go only when their segment is merged
# with others. A segment by itself is not merged for its deletions, whatever their share, neither by `commit` nor by
# `wait_merging_threads`, and the Python package has no call for it.
#
# tantivy 0.27.0; 2026-12-01.
# Seen, 23 rows beside 1000 copies of a refusal that are then deleted, first row and score for "parcel refund"
# ("refund" is in one of the 23 rows, "parcel" in 22):
#     before                    parcel lost again     4.25
#     copies deleted, 23 rows   parcel lost again     4.25   (the row with "refund" is not among the first 20)
#     new index of 23 rows      refund sent by mail   2.76   (parcel lost again: 0.07)
#
# For you: copies, refusals and templates are what one deletes from training data, and their words then stay common. The
# rows that are about just these words are not found. Build the index anew after you have deleted many rows.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip tantivy==0.27.0

"$place/venv/bin/python" - <<'PY'
import tantivy

copies = dict.fromkeys(range(1000), "sorry no refund today")
kept = {1000: "refund sent by mail", 1001: "parcel sent by mail", 1002: "parcel lost again"}
kept |= dict.fromkeys(range(1003, 1023), "parcel arrived in time")
fields = tantivy.SchemaBuilder()
fields.add_text_field("text", stored=True)
fields.add_integer_field("row", stored=True, indexed=True)
schema = fields.build()


def indexed(rows):
    """An index of rows, and its writer."""
    index = tantivy.Index(schema)
    writer = index.writer(num_threads=1)
    for row, text in rows.items():
        writer.add_document(tantivy.Document(text=text, row=row))
    writer.commit()
    index.reload()
    return index, writer


def search(name, index):
    """The first 20 rows for the query, with scores."""
    searcher = index.searcher()
    found = searcher.search(index.parse_query("parcel refund", ["text"]), 20).hits
    texts = [(searcher.doc(place)["text"][0], round(score, 2)) for score, place in found]
    print(f"{name:25}{searcher.num_docs:5} rows: {texts[:2]}")
    return texts, searcher.num_docs


index, writer = indexed(copies | kept)
before, _ = search("before", index)
for row in copies:
    writer.delete_documents_by_term("row", row)
writer.commit()
index.reload()
deleted, count = search("deleted", index)
writer.wait_merging_threads()
index.reload()
waited, _ = search("deleted, and waited", index)
new, same = search("new index of the rest", indexed(kept)[0])
assert count == same == len(kept) and before[0] == deleted[0] == waited[0] == ("parcel lost again", 4.25)
assert all(text != kept[1000] for text, _ in deleted + waited)
assert new[0] == (kept[1000], 2.76) and new[1] == ("parcel lost again", 0.07)
PY
