"""Write docs/cli/ from the commands' own help, and the maps of rooms from the modules' first lines."""

import html
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "airrep"
START, END = "<!-- rooms -->\n", "<!-- end of rooms -->\n"
HEAD = """# Command line

`make docs` writes these pages from the commands' own help. Results go to stdout (for programs, add `--json`), progress
and notes to stderr. `airrep COMMAND --help` lists the main options, `--help-all` all options.

Exit status: 0 for success, 1 for an error, which is one line on stderr, 2 for a command line that cannot be parsed, and
130 for an interruption.
"""
LLMS_HEAD = """# airrep

> Training data attribution of fine-tuned language models: which training examples, and which groups of them, made a
> model behave as it does. A Python library and a command line.

## Pages

"""
PAGES = {
    "query_commands": ("ask", "Asking"),
    "question_commands": ("answers", "Explaining"),
    "prove_commands": ("prove", "Proving"),
    "index_commands": ("index-commands", "Indexes"),
    "label_commands": ("label", "Labels"),
    "train_commands": ("train", "Training"),
    "evaluate_commands": ("compare", "Comparing"),
}
"""Page and title of the commands of a module of `airrep.cli`; those of others are on the last page."""
OF_COMMANDS = {"evaluate": ("evaluate", "Judging"), "serve": ("serve", "Serving"), "mcp": ("serve", "Serving")}
"""Page and title of single commands."""
OTHER = ("other", "Other commands")


def cli_reference() -> dict[str, str]:
    """The help of every command as Markdown, by page."""
    command = [sys.executable, "-m", "typer", "airrep.cli.app", "utils", "docs", "--name", "airrep"]
    text = html.unescape(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    _, *sections = re.split(r"^(?=## `airrep )", re.sub(r"\n{3,}", "\n\n", text), flags=re.MULTILINE)
    homes = command_homes()
    if gone := PAGES.keys() - set(homes.values()):
        sys.exit(f"PAGES: {', '.join(gone)} holds no command; expected modules of airrep.cli. Correct the name.")
    pages: dict[str, list[str]] = {}
    lines = []
    for section in sections:
        name = section.split("`")[1].removeprefix("airrep ").split()[0]
        page, title = OF_COMMANDS.get(name) or PAGES.get(homes[name], OTHER)
        pages.setdefault(page, [f"# {title}\n"]).append(section.strip() + "\n")
        about = " ".join(section.split("\n\n")[1].split())
        lines.append(f"| [`{section.split('`')[1]}`]({page}.md) | {about} |")
    index = HEAD + "\n| command | what it does |\n|---|---|\n" + "\n".join(lines) + "\n"
    return {"index": index, **{page: "\n".join(parts) for page, parts in pages.items()}}


def python_reference() -> str:
    """A page that the site fills with the docstrings of all public names."""
    import airrep

    homes = {name: f"airrep.{home}.{name}" for name, home in airrep._HOMES.items()}
    for space in airrep._NAMESPACES:
        module = import_module(f"airrep.{space}")
        homes |= {f"{space}.{name}": f"{getattr(module, name).__module__}.{name}" for name in module.__all__}
    parts = [f"## airrep.{name}\n\n::: {place}\n" for name, place in homes.items()]
    head = "# Python reference\n\nThis page shows the docstrings of all public names. "
    head += "Examples are on the page [airrep in Python](python.md).\n\n"
    return head + "\n".join(parts)


def llms_text() -> str:
    """The pages of the site, for language models: https://llmstxt.org."""
    pages = re.findall(r"^ +- (.+): (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    return LLMS_HEAD + "".join(f"- [{title}]({page})\n" for title, page in pages)


def command_homes() -> dict[str, str]:
    """The module of `airrep.cli` of each command, or of a group of commands."""
    import typer.main

    from airrep.cli import app

    found = {}
    for name, command in typer.main.get_command(app.app).commands.items():
        inner = getattr(command, "commands", None)
        callback = next(iter(inner.values())).callback if inner else command.callback
        found[name] = callback.__module__.rpartition(".")[2]
    return found


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
    """The rooms of the package from the ground up, for docs/architecture.md."""
    order = re.findall(r'"([a-z_ |]+)"', (ROOT / "pyproject.toml").read_text().split("layers = [")[1].split("]")[0])
    names = [name for row in reversed(order) for name in row.split(" | ") if (PACKAGE / name).is_dir()]
    lines = [f"{name + '/':<13} {purpose(PACKAGE / name)}" for name in names]
    return "\n".join(["```", *lines, "```"]) + "\n"


def main() -> None:
    """Write all of them."""
    for page, text in cli_reference().items():
        (ROOT / "docs" / "cli" / f"{page}.md").write_text(text, encoding="utf-8")
    (ROOT / "docs" / "reference.md").write_text(python_reference(), encoding="utf-8")
    (ROOT / "docs" / "llms.txt").write_text(llms_text(), encoding="utf-8")
    for room in rooms():
        (room / "__init__.py").write_text(room_docstring(room), encoding="utf-8")
    page = ROOT / "docs" / "architecture.md"
    before, rest = page.read_text(encoding="utf-8").split(START)
    page.write_text(before + START + room_map() + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
