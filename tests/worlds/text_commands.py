"""A program that runs commands of airrep in one process, where some packages are not installed.

It reads ``{"absent": [module, ...], "commands": [[word, ...], ...]}``, and writes for each command its status, what it
told on stdout, and on stderr.
"""

import contextlib
import io
import json
import sys
from importlib.machinery import ModuleSpec


class Absent:
    """Finds no module of some packages, as if they were not installed."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Refuse the names that are absent, and leave all others to Python."""
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def run(words: list[str]) -> tuple[int, str, str]:
    """One command, as the shell starts it."""
    from airrep.cli.app import main

    sys.argv = ["airrep", *words]
    told, warned, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(warned):
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, told.getvalue(), warned.getvalue()


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    sys.meta_path.insert(0, Absent(asked["absent"]))  # type: ignore[arg-type]
    found = [run(words) for words in asked["commands"]]
    loaded = sorted({name.partition(".")[0] for name in sys.modules} & set(asked["absent"]))
    sys.stdout.write(json.dumps({"results": found, "loaded": loaded, "modules": len(sys.modules)}))
