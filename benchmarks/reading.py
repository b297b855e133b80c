"""Reading a large JSON Lines file: time, and memory beside the texts.

Usage: python benchmarks/reading.py [RECORDS]      (default 1,000,000 records, about 250 MB of disk)
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import airrep

TEXT = "the model was fine tuned on examples that help or harm what it says about a query"
WORDS = tuple(TEXT.split())


def write(path: Path, records: int) -> None:
    """Write records with texts of some 200 characters."""
    with path.open("w", encoding="utf-8") as stream:
        for number in range(records):
            prompt = f"{number} " + " ".join(WORDS[(number + i) % len(WORDS)] for i in range(20))
            stream.write(json.dumps({"prompt": prompt, "response": prompt[::-1]}) + "\n")


def peak() -> float:
    """Most memory of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(records: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.jsonl"
        write(path, records)
        airrep.read_corpus(Path(airrep.__file__).parent / "data" / "queries.jsonl")
        before, begun = peak(), time.process_time()
        corpus = airrep.read_corpus(path)
        seconds, grown = time.process_time() - begun, peak() - before
        print(f"{len(corpus):,} records, {path.stat().st_size / 2**20:,.0f} MiB on disk")
        print(f"{seconds:.1f} s of CPU, {records / seconds:,.0f} records/s")
        print(f"memory grew by {grown:,.0f} MiB at most; the table holds {corpus.table.nbytes / 2**20:,.0f} MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
