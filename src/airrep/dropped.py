"""Removed commands, options, pools and Python names, each with its replacement."""

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "explain": "airrep top INDEX QUERIES, with --better as before",
    "datamodels": "airrep train LABELS#i --method datamodels --out DIR",
    "diagnose": "airrep evaluate INDEX... --labels LABELS --data DATA --why, with or without an index",
    "evaluate classify": "airrep evaluate INDEX... --queries QUERIES",
    "evaluate lds": "airrep evaluate INDEX... --labels LABELS --data DATA",
    "evaluate loo": "airrep evaluate INDEX... --labels LABELS --data DATA",
    "evaluate select": "airrep evaluate INDEX... --queries QUERIES --lm MODEL --count N",
    "judge": "airrep prove INDEX QUERIES --lm MODEL --budget 30m",
    "compact": "airrep delete INDEX --compact",
    "join": "airrep append NEW-INDEX PART...",
    "methods": "airrep show methods, or airrep show METHOD",
    "plan": "airrep index DATA --out INDEX --dry-run (also label, train and adapt --dry-run)",
    "run": "a shell script with the commands; airrep rerun RESULT runs those that made a result",
    "stack": "airrep adapt DATA --labels LABELS --held-out LABELS --out DIR",
    "take": "airrep export INDEX --to records --data DATA --only EXAMPLES --out FILE",
}
"""Removed commands."""
_LEARNING = "labels of your model: airrep label, then airrep train or airrep adapt --labels"
_OF_TEACHERS = ("", "-steps", "-sizes", "-instances", "-pool", "-temperature", "-queries")
_SETTINGS = (
    *("address", "checkpoints", "contained", "context", "cosine", "curve", "diversity", "drop"),
    *("drop_duplicates", "engine", "exact", "figures", "full", "gpus", "join", "max_new_tokens", "max_tokens", "mixed"),
    *("nearly", "none", "order", "random", "removals_by", "resample", "resamples"),
    *(
        "retries",
        "retry_quarantined",
        "seed",
        "selecting",
        "shard_rows",
        "skip_unlabelled",
        "state",
        "token",
        "tokenizer",
    ),
    *("top", "train_layers", "vote", "what_if"),
)
OPTIONS: Mapping[str, str] = {
    **{f"--{name.replace('_', '-')}": f"--set {name}=VALUE (true, where it stood alone)" for name in _SETTINGS},
    "--activations": "--set shared=DIR",
    "--axolotl": "--write axolotl=DIR",
    "--config": "--set FILE.yaml",
    "--disjoint": "--set disjoint_instances=true",
    "--encoder": "--set near_by=ENCODER",
    "--groups": "--by FILE.json",
    "--index-set": "--set NAME:key=value",
    "--llama-factory": "--write llama-factory=FILE",
    "--no-token": "--set token=none",
    "--no-vectors": "--set vectors=false",
    "--removals": "nothing: airrep recognizes labels of removals",
    "--shard": "--part i/n",
    "--start": "--set start=ENCODER",
    "--yaml": "--write yaml=FILE",
    "--beside": "airrep adapt, which trains its encoder alongside the n-gram channels",
    "--merged": "--set merged=true",
    "--harmful": "--least, or airrep clean INDEX QUERIES --kind harmful",
    "--member": "--recipe FILE.yaml, which lists the channels",
    "--rival": "airrep compare RUN..., which tests one method against another",
    "--stratify": "--set stratify=source, or --set stratify=label",
    "--temperature": "the temperature in a recipe, or --pool attention:0.2 for group, what-if and evaluate",
    **{f"--teacher{part}": _LEARNING for part in _OF_TEACHERS},
}
"""Removed options of any command."""
_ATTENTION = "attention at a low temperature, where the highest scores decide: --pool attention:0.2"
POOLS: Mapping[str, str] = {"power": _ATTENTION, "top": _ATTENTION}
"""Removed pools, without the number in their names."""
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
"""Removed public Python names."""


def instead_of(table: Mapping[str, str], name: str) -> str | None:
    """Return a sentence that says what to type instead of a removed name; None for a name that was not removed."""
    found = table.get(name)
    return None if found is None else f"{name}: is gone; type instead: {found}"
