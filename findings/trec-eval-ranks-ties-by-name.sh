#!/usr/bin/env bash
# The guess: measures of a ranking take texts of equal score in the order of the run, or average over their orders;
# and scores of Python are float64, so 0.900000001 comes before 0.9.
#
# What happens: pytrec_eval, which retrieval benchmarks such as BEIR use, reads scores as float32 and sorts equal ones
# by the name of the document, the last name first. Differences below 6e-8 of a score are ties. Whether the right text
# is first is then up to its name.
#
# pytrec-eval-terrier 0.5.11; 2026-11-30.
# Seen, one query, its right text and a wrong one:
#     tie, right text named z                            reciprocal rank 1
#     tie, right text named a                                            0.5
#     right one 1e-9 higher, named a                                     0.5
#     right one 1e-9 lower, named z                                      1
#     100 queries with scores of few values, right texts named last      nDCG@10 0.236
#     the same, right texts named first                                          0.012
#
# For you: scores in few bits, counts of shared words, or lists with many zeros have many ties, so that another naming
# of the same rows gives other figures. Break ties yourself: give ranks, such as len(run) - place, as scores.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip pytrec-eval-terrier==0.5.11

"$place/venv/bin/python" - <<'PY'
import random

import pytrec_eval


def first(right, wrong, scores):
    """The reciprocal rank of the right text under the given names."""
    evaluator = pytrec_eval.RelevanceEvaluator({"query": {right: 1}}, {"recip_rank"})
    return evaluator.evaluate({"query": dict(zip((right, wrong), scores, strict=True))})["query"]["recip_rank"]


cases = {
    "tie, right text named z": first("z", "b", (0.9, 0.9)),
    "tie, right text named a": first("a", "b", (0.9, 0.9)),
    "right 1e-9 higher, named a": first("a", "b", (0.9 + 1e-9, 0.9)),
    "right 1e-9 lower, named z": first("z", "b", (0.9, 0.9 + 1e-9)),
    "right 1e-6 higher, named a": first("a", "b", (0.9 + 1e-6, 0.9)),
}
for name, value in cases.items():
    print(f"{name:28} reciprocal rank {value}")
assert list(cases.values()) == [1.0, 0.5, 0.5, 1.0, 1.0]

draw = random.Random(0)
marks = [[draw.randrange(4) for _ in range(50)] for _ in range(100)]  # scores of few values, as of shared words
means = {}
for name, named in (("right texts named last", "z"), ("right texts named first", "0")):
    truth, run = {}, {}
    for query, scores in enumerate(marks):
        names = [named, *(f"text{number:02}" for number in range(1, 50))]
        truth[str(query)], run[str(query)] = {named: 1}, dict(zip(names, map(float, scores), strict=True))
    found = pytrec_eval.RelevanceEvaluator(truth, {"ndcg_cut_10"}).evaluate(run)
    means[name] = sum(each["ndcg_cut_10"] for each in found.values()) / len(found)
    print(f"the same 100 queries, {name}: nDCG@10 {means[name]:.3f}")
assert means["right texts named last"] > 2 * means["right texts named first"]
PY
