"""Write docs/cli.md from the commands' own help, and the maps of rooms from the modules' first lines."""

import html
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "airrep"
START, END = "<!-- rooms -->\n", "<!-- end of rooms -->\n"
HEAD = "# Command line\n\nMade from the commands' own help by `make docs`.\n\n"


def cli_reference() -> str:
    """The help of every command as Markdown."""
    command = [sys.executable, "-m", "typer", "airrep.cli.app", "utils", "docs", "--name", "airrep"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return HEAD + re.sub(r"\n{3,}", "\n\n", html.unescape(text)).strip() + "\n"


def purpose(path: Path) -> str:
    """The first line of a module or a room."""
    source = path / "__init__.py" if path.is_dir() else path
    return source.read_text(encoding="utf-8").split('"""')[1].split("\n")[0]


def rooms() -> list[Path]:
    """Folders of the package that hold modules, each before those inside it."""
    return sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)


def room_docstring(room: Path) -> str:
    """The purpose of a room, and a line for each of its files and inner rooms."""
    inside = [path for path in room.iterdir() if path.suffix == ".py" and path.name != "__init__.py"]
    inside += [path for path in rooms() if path.parent == room]
    names = {path: path.stem + ("/" if path.is_dir() else "") for path in inside}
    width = max(map(len, names.values()))
    lines = [f"{name:<{width}}  {purpose(path)}" for path, name in sorted(names.items(), key=lambda item: item[1])]
    return "\n".join([f'"""{purpose(room)}', "", *lines, '"""', ""])


def room_map() -> str:
    """The rooms of the package from the ground up, for the README."""
    order = re.findall(r'"([a-z_ |]+)"', (ROOT / "pyproject.toml").read_text().split("layers = [")[1].split("]")[0])
    names = [name for row in reversed(order) for name in row.split(" | ") if (PACKAGE / name).is_dir()]
    lines = [f"{name + '/':<13} {purpose(PACKAGE / name)}" for name in names]
    return "\n".join(["```", *lines, "```"]) + "\n"


def main() -> None:
    """Write all of them."""
    (ROOT / "docs" / "cli.md").write_text(cli_reference(), encoding="utf-8")
    for room in rooms():
        (room / "__init__.py").write_text(room_docstring(room), encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    before, rest = readme.split(START)
    (ROOT / "README.md").write_text(before + START + room_map() + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
