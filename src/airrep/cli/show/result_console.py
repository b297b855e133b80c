"""What `airrep show` prints of evaluations and comparisons."""

from pathlib import Path

from airrep.cli.show.evaluating_console import print_comparison, print_correlations
from airrep.cli.show.selecting_console import print_classification, print_selection
from airrep.evaluation.comparison import KIND as COMPARISON
from airrep.evaluation.comparison import read_comparison
from airrep.evaluation.result import read_evaluation
from airrep.runtime.artifacts import read_manifest

_PRINT = {
    "lds": print_correlations,
    "loo": print_correlations,
    "classify": print_classification,
    "select": print_selection,
}


def print_result(path: Path) -> None:
    """Print the result that an artifact holds.

    Raises:
        ArtifactError: it is altered, or neither an evaluation nor a comparison.
    """
    if read_manifest(path)["kind"] == COMPARISON:
        print_comparison(read_comparison(path))
    else:
        evaluation = read_evaluation(path)
        _PRINT[evaluation.measure](evaluation)
