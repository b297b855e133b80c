"""Names that were dropped, each with what to type instead: commands, options, pools, Python."""

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "explain": "airrep top INDEX QUERIES, with --better as before",
    "datamodels": "airrep train LABELS#i --method datamodels --out DIR",
    "diagnose": "airrep evaluate lds INDEX... --labels LABELS --why, with or without an index",
    "evaluate loo": "airrep evaluate lds INDEX... --labels LABELS --removals",
    "compact": "airrep delete INDEX --compact",
    "join": "airrep append NEW-INDEX PART...",
    "methods": "airrep show methods, or airrep show METHOD",
    "plan": "airrep index DATA --out INDEX --dry-run (also label, train and adapt --dry-run)",
    "run": "a shell script with the commands; airrep rerun RESULT runs those that made a result",
    "stack": "airrep adapt DATA --labels LABELS --held-out LABELS --out DIR",
    "take": "airrep export INDEX --to records --data DATA --only EXAMPLES --out FILE",
}
"""Commands of the command line."""
_LEARNING = "labels of your model: airrep label, then airrep train or airrep adapt --labels"
_OF_TEACHERS = ("", "-steps", "-sizes", "-instances", "-pool", "-temperature", "-queries")
OPTIONS: Mapping[str, str] = {
    "--beside": "airrep adapt, which trains its encoder beside the channels that count",
    "--merged": "--set merged=true",
    "--harmful": "--least, or airrep clean INDEX QUERIES --kind harmful",
    "--member": "--recipe FILE.yaml, which lists the channels",
    "--rival": "airrep compare RUN..., which tests one method against another",
    "--stratify": "--set stratify=source, or --set stratify=label",
    "--train-layers": "--set train_layers=N, or --set train_layers=all",
    "--temperature": "a recipe's temperature, or, of group, what-if and evaluate, --pool attention:0.2",
    **{f"--teacher{part}": _LEARNING for part in _OF_TEACHERS},
}
"""Options of the command line, whatever the command."""
_ATTENTION = "attention at a low temperature, where the highest scores decide: --pool attention:0.2"
POOLS: Mapping[str, str] = {"power": _ATTENTION, "top": _ATTENTION}
"""Pools, without their number."""
NAMES: Mapping[str, str] = {
    "explain": "airrep.top(index, answers, better=better)",
    "harmful": "airrep.top(index, queries, least=True), or airrep.clean(index, queries)",
    "learn_stack": "airrep.adapt(members, learn, held_out, out)",
    "open_index": "airrep.open(path), or airrep.Index(path)",
    "open_labels": "airrep.open(path)",
    "open_plan": "airrep.open(path)",
    "read_evaluation": "airrep.open(path)",
    "read_result": "airrep.open(path)",
    "read_training_record": "airrep.open(path)",
    "take_records": "from airrep.corpus.originals import take_records",
}
"""Public names of Python."""


def instead_of(table: Mapping[str, str], name: str) -> str | None:
    """One sentence that says what to type in place of a dropped name; None where nothing of this name was dropped."""
    found = table.get(name)
    return None if found is None else f"{name}: is gone; type instead: {found}"
