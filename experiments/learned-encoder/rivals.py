"""Compare a trained encoder with the untrained one and TF-IDF, as `airrep adapt` does.

Usage: python experiments/learned-encoder/rivals.py ENCODER LABELS DATA.jsonl

LABELS has two instances: temperatures of the rivals are chosen on the first, all are judged on the second.
"""

import sys

from airrep.cli.show.learning import print_verdict
from airrep.corpus.corpus import read_corpus
from airrep.labels.gather import gather
from airrep.planning.adapt import load_packed, rivals
from airrep.planning.verdict import judge_on_instance


def main(encoder: str, labels: str, data: str) -> None:
    """Read, judge, print."""
    stop, last = gather([labels], [read_corpus(data)])
    print_verdict(judge_on_instance(load_packed(encoder), rivals("untrained"), stop, last, encoder))


if __name__ == "__main__":
    main(*sys.argv[1:])
