"""What the features of an index cost, for the rows of evaluations."""

from airrep.evaluation.result import Cost
from airrep.index.index import Index
from airrep.runtime.costs import index_cost, stored_bytes_per_example


def cost_of(index: Index) -> Cost:
    """Bytes of the features as they lie on disk, codes for quick searches included; and seconds where recorded."""
    recorded = index_cost(index.path)
    stored = stored_bytes_per_example(index.path)
    return Cost(stored, None) if recorded is None else Cost(stored, recorded.seconds_per_example, recorded.by_clock)
