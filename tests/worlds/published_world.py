"""A folder in the airrep-test layout."""

import json
from pathlib import Path

import numpy as np

from airrep.corpus.corpus import Corpus


def write_published(folder: Path, train: Corpus, queries: Corpus, m: int = 6, size: int = 5) -> list[dict[str, list]]:
    """Write the three files; the lines of the third are returned."""
    generator = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, corpus in (("train", train), ("test", queries)):
        lines = (json.dumps({"prompt": one.prompt, "response": one.response}) + "\n" for one in corpus)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    subsets = [
        {
            "train_subset": generator.choice(len(train), size, replace=False).tolist(),
            "test_loss": generator.random(len(queries)).tolist(),
        }
        for _ in range(m)
    ]
    (folder / "lds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in subsets))
    return subsets
