"""Write docs/cli.md from the commands' own help, and the README's file map from the modules' first lines."""

import html
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "airrep"
START, END = "<!-- file map -->\n", "<!-- end of file map -->\n"
HEAD = "# Command line\n\nMade from the commands' own help by `make docs`.\n\n"


def cli_reference() -> str:
    """The help of every command as Markdown."""
    command = [sys.executable, "-m", "typer", "airrep.cli.app", "utils", "docs", "--name", "airrep"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return HEAD + re.sub(r"\n{3,}", "\n\n", html.unescape(text)).strip() + "\n"


def file_map() -> str:
    """A table of modules and their purposes."""
    rows = ["| file | purpose |", "|---|---|"]
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name not in ("__init__.py", "_version.py"):
            purpose = path.read_text(encoding="utf-8").split('"""')[1].split("\n")[0].rstrip(".")
            rows.append(f"| `{path.relative_to(PACKAGE).as_posix()}` | {purpose} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Write both."""
    (ROOT / "docs" / "cli.md").write_text(cli_reference(), encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    before, rest = readme.split(START)
    after = rest.split(END)[1]
    (ROOT / "README.md").write_text(before + START + file_map() + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
