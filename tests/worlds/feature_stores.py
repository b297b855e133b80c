"""Feature stores as traker and logix-ai write them, written by hand, for tests.

Compared byte by byte with what traker 0.3.2 and logix-ai 0.1.1 wrote on a small network (but for the scores of the
former, which nothing reads).
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap


def write_trak(
    store: Path,
    features: Sequence[np.ndarray],
    chances: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    *,
    experiment: str = "quick",
    finalized: bool = True,
) -> Path:
    """Write a TRAK store; one entry of each sequence for each checkpoint. Returns the path of the scores.

    Each array is a .npy file named .mmap: features ``(n, d)``, chances ``(n, 1)``, target gradients ``(q, d)``.
    """
    (store / "scores").mkdir(parents=True)
    shape = {"JL dimension": features[0].shape[1], "JL matrix type": "rademacher", "train set size": len(features[0])}
    (store / "metadata.json").write_text(json.dumps(shape))
    for number, arrays in enumerate(zip(features, chances, targets, strict=True)):
        (store / str(number)).mkdir()
        names = ("features", "out_to_loss", f"{experiment}_grads")
        for name, array in zip(names, arrays, strict=True):
            file = open_memmap(store / str(number) / f"{name}.mmap", mode="w+", shape=array.shape, dtype=array.dtype)
            file[:] = array
            file.flush()
        record = {number: {"is_featurized": 1, "is_finalized": int(finalized)}}
        (store / f"id_{number}.json").write_text(json.dumps(record))
    scores = store / "scores" / f"{experiment}.mmap"
    open_memmap(scores, mode="w+", shape=(len(features[0]), len(targets[0])), dtype=np.float32)
    return scores


def write_logix(
    folder: Path,
    examples: Sequence[tuple[str, Sequence[np.ndarray]]],
    *,
    rank: int = 0,
    per_chunk: int = 4,
    kind: str = "grad",
) -> Path:
    """Write a LogIX log: each example has an id and one array for each module. Returns the folder.

    A chunk is the raw bytes of its examples, one after another, module by module; beside it lies a list of records.
    """
    folder.mkdir(exist_ok=True)
    for number, first in enumerate(range(0, len(examples), per_chunk)):
        part, records, content = examples[first : first + per_chunk], [], b""
        for name, arrays in part:
            record = {
                "data_id": name,
                "path": [[f"layer{module}", kind] for module in range(len(arrays))],
                "offset": len(content),
                "shape": [array.shape for array in arrays],
                "block_size": sum(array.size for array in arrays),
                "dtype": str(arrays[-1].dtype),
            }
            records.append(record)
            content += b"".join(array.tobytes() for array in arrays)
        stem = folder / f"log_rank_{rank}_chunk_{number}"
        stem.with_suffix(".mmap").write_bytes(content)
        stem.with_name(f"{stem.name}_metadata.json").write_text(json.dumps(records, indent=2))
    return folder
