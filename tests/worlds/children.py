"""Work in forked processes, to be killed."""

import os
import resource
import time
import warnings
from collections.abc import Callable


def in_child(work: Callable[[], object]) -> int:
    """Start work in a forked process; returns its process id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def children_seconds() -> float:
    """CPU seconds of this process and of those that it waited for."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
