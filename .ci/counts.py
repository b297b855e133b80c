"""Count what a user and an engineer must know; fail where a number is above its limit in limits.json.

``--update`` lowers limits to today's numbers and raises none: who needs more edits a limit and lowers another.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "airrep"
LIMITS = Path(__file__).with_name("limits.json")
# Flag 1 is a function's, not a class body's or a module's.
PROFILED = """
import atexit, sys, threading
package, out, *sys.argv = sys.argv[1:]
seen = set()
def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(package) and code.co_flags & 1:
        seen.add((code.co_filename, code.co_firstlineno, code.co_name))
threading.setprofile(note)
sys.setprofile(note)
atexit.register(lambda: open(out, "w").write(str(len([one for one in seen if not one[2].startswith("<")]))))
from airrep.cli.app import main
main()
"""


def options(command: Any) -> list[list[str]]:
    """List the visible options of a command, or of each command below it."""
    if hasattr(command, "commands"):
        return [found for below in command.commands.values() if not below.hidden for found in options(below)]
    shown = (
        one
        for one in command.params
        if one.param_type_name == "option" and not one.hidden and getattr(one, "rich_help_panel", "") != "Reading data"
    )
    return [[max(one.opts, key=len) for one in shown]]


def interface() -> dict[str, int]:
    """Count the public names, the commands and their options, and the settings of all methods.

    How a model is read is told in the same words everywhere, so these settings count once.
    """
    import typer

    import airrep
    from airrep.attributors.methods import METHODS
    from airrep.cli.app import make_app
    from airrep.cli.options import ReadingOptions
    from airrep.lm.settings import LmSettings

    shared = set(LmSettings.model_fields)
    commands = options(typer.main.get_command(make_app()))
    reading = ReadingOptions.__dataclass_fields__  # one group, the same in all commands
    return {
        "public names": len([name for name in dir(airrep) if not name.startswith("_")]),
        "commands": len(commands),
        "options": sum(map(len, commands)) + len(reading),
        "distinct options": len({name for found in commands for name in found}) + len(reading),
        "settings of methods": len(shared)
        + sum(len({*one.settings.model_fields} - shared) for one in METHODS.values()),
    }


def functions() -> dict[str, int]:
    """Count the functions that `index` and `top` run over 200 examples of the demo, by the default recipe."""
    with tempfile.TemporaryDirectory() as name:
        data, index, out = (Path(name) / part for part in ("data.jsonl", "index", "count"))
        records = (PACKAGE / "data" / "train.jsonl").read_text("utf-8").splitlines()
        data.write_text("\n".join(records[:200]), "utf-8")
        asked = ["--prompt", "Can I eat zucchini raw?", "--response", "No, cook it before eating."]
        found = {}
        for command in (["index", str(data), "--out", str(index)], ["top", str(index), *asked]):
            run = [sys.executable, "-c", PROFILED, str(PACKAGE), str(out), "airrep", *command]
            subprocess.run(run, check=True, capture_output=True, env=os.environ | {"AIRREP_CACHE": f"{name}/cache"})
            found[f"functions of {command[0]}"] = int(out.read_text())
    return found


def lines(folder: Path) -> Counter[str]:
    """Count the lines of Python below a folder, by room."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*.py"):
        room = path.relative_to(folder).parts[0]
        found["." if room == path.name else room] += len(path.read_text("utf-8").splitlines())
    return found


def readme() -> dict[str, int]:
    """Count the lines, words and numbers of the README."""
    text = (ROOT / "README.md").read_text("utf-8")
    counted = text.splitlines(), text.split(), re.findall(r"\d[\d.,]*", text)
    return dict(zip(("README lines", "README words", "README numbers"), map(len, counted), strict=True))


def risen(found: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """Name the numbers above their limits."""
    return [f"{name}: {count:,}, at most {limits[name]:,}" for name, count in found.items() if count > limits[name]]


def main() -> None:
    """Print the table; fail where a number has risen."""
    rooms, tests, files = lines(PACKAGE), lines(ROOT / "tests"), len(list(PACKAGE.rglob("*.py")))
    found = interface() | {"files of src": files, "lines of src": rooms.total(), "lines of tests": tests.total()}
    found |= functions() | readme()
    limits: dict[str, int] = dict.fromkeys(found, sys.maxsize) | json.loads(LIMITS.read_text())
    print("lines by room: " + ", ".join(f"{room} {count:,}" for room, count in sorted(rooms.items())))
    for name, count in found.items():
        print(f"{name:20} {count:7,}  at most {limits[name]:7,}")
    if "--update" in sys.argv:
        lowered = {name: min(count, limits[name]) for name, count in found.items()}
        LIMITS.write_text(json.dumps(lowered, indent=2) + "\n")
    elif above := risen(found, limits):
        sys.exit(
            "\n".join(
                ["Above the limit: make it smaller, or raise the limit in .ci/limits.json and lower another.", *above]
            )
        )


if __name__ == "__main__":
    main()
