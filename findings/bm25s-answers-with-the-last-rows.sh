#!/usr/bin/env bash
# The guess: a search by words returns texts that share a word with the query, none if there is none, and any word
# counts.
#
# What happens: bm25s always returns k texts. Where too few share a word, the rest of the places goes to the last rows
# of the corpus, with the score 0. And its tokenizer takes for words only what has two letters or digits at least:
# "7", "C" or the choice "B" are in no text and in no query. A query of such words gets the last rows, and "answer A"
# cannot be told from "answer B".
#
# bm25s 0.3.16, numpy 2.4.6; 2026-11-30.
# Seen, of six texts, the three first for a query, with their scores:
#     zebra          last row 0, written in R 0, written in C 0
#     7              last row 0, written in R 0, written in C 0
#     answer A       the answer is B 0.44, the answer is A 0.44, written in R 0
#     answer B       the answer is B 0.44, the answer is A 0.44, written in R 0
#     written in C   written in R 0.44, written in C 0.44, last row 0
#
# For you: the newest rows of a data set become neighbours of everything that it does not know, and questions of
# multiple choice or of short numbers are matched without their answers. Drop hits of score 0, and pass
# `token_pattern=r"(?u)\b\w+\b"` to `tokenize`, for texts and queries.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip bm25s==0.3.16 numpy==2.4.6

"$place/venv/bin/python" -W ignore - <<'PY'
import bm25s

texts = ["the answer is A", "the answer is B", "grade 7 of 9", "written in C", "written in R", "last row"]


def search(query, **settings):
    """The three first texts, with scores."""
    model = bm25s.BM25()
    model.index(bm25s.tokenize(texts, show_progress=False, **settings), show_progress=False)
    asked = bm25s.tokenize([query], show_progress=False, **settings)
    found, scores = model.retrieve(asked, k=3, show_progress=False)
    return [(texts[row], round(float(score), 2)) for row, score in zip(found[0], scores[0], strict=True)]


short = {"token_pattern": r"(?u)\b\w+\b"}
for query in ("zebra", "7", "answer A", "answer B", "written in C"):
    print(f"{query:14}{search(query)}")
    print(f"{'':14}short words too: {search(query, **short)}")
last = [("last row", 0.0), ("written in R", 0.0), ("written in C", 0.0)]
assert search("zebra") == search("7") == last
assert search("answer A") == search("answer B") and search("answer A")[0][1] == search("answer A")[1][1] > 0
assert search("7", **short)[0] == ("grade 7 of 9", search("7", **short)[0][1]) and search("7", **short)[0][1] > 0
assert search("answer B", **short)[0][0] == "the answer is B" and search("zebra", **short) == last
PY
