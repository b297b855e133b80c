"""Arrays of an index mapped from the disk, without a file that stays open."""

import math
import os
from pathlib import Path

import numpy as np


def map_array(path: Path) -> np.ndarray:
    """An array of a ``.npy`` file, read from the disk where it is touched; what is written to it stays in memory.

    Python's own maps keep a descriptor each, of which a process has a thousand, so torch maps the file.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is no array file, or of another length than its header says.
    """
    with path.open("rb") as stream:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("a header of another version")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        begin, size = stream.tell(), os.fstat(stream.fileno()).st_size
    if dtype.hasobject or size != begin + dtype.itemsize * math.prod(shape):
        raise ValueError("other bytes than its header says")
    if size == begin:
        return np.empty(shape, dtype)
    return _map(path, size)[begin:].view(dtype).reshape(shape, order="F" if fortran else "C")


def _map(path: Path, size: int) -> np.ndarray:
    import torch  # here, since it takes long to load: rows are read without

    try:
        mapped: np.ndarray = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8).numpy()
    except RuntimeError as error:
        raise OSError(None, str(error).partition("\n")[0]) from error
    return mapped
