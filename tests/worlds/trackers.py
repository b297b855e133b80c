"""Modules that stand for trackio, wandb and mlflow: what is logged to them becomes lines of a file."""

from pathlib import Path

TRACKERS = ("trackio", "wandb", "mlflow")
_MODULE = """
import json, os

def _note(*told):
    with open({file!r}, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(told) + "\\n")
    print("a tracker talks")  # which must not reach the command's stdout

def _fails(name):
    if os.environ.get("TRACKER_FAILS") == name:
        raise OSError("no network\\nat all")

class _Run:
    def log(self, values, step=None):
        _fails("log")
        _note("log", values, step)

    def finish(self, exit_code=None):
        _fails("finish")
        _note("finish", exit_code)

def init(project, name, config):
    _fails("init")
    _note("init", project, name, config)
    return _Run()

def set_experiment(name):
    _fails("init")
    _note("init", name)

def start_run(run_name):
    _note("start", run_name)

def log_params(params):
    _note("params", params)

def log_metrics(values, step=None):
    _fails("log")
    _note("log", values, step)

def end_run(status):
    _note("finish", status)
"""


def write_trackers(folder: Path) -> Path:
    """Write the modules into a folder, for ``PYTHONPATH``; returns the file that they write."""
    folder.mkdir(exist_ok=True)
    file = folder / "logged.jsonl"
    for name in TRACKERS:
        (folder / f"{name}.py").write_text(_MODULE.format(file=str(file)), "utf-8")
    return file
