"""Write the transcript of docs/agents.md: five calls of a real session on the demo's data.

Usage: python docs/agents.py     (needs the extra mcp)
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

import airrep

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "agents.md"
START, END = "<!-- transcript -->\n", "<!-- end of transcript -->\n"
ASKED = {"prompt": "Can I eat zucchini raw?", "response": "No, zucchini should be cooked before eating."}


def shown(told: dict[str, Any]) -> list[str]:
    """An answer as JSON with a line for each field, and for each item of a list of objects."""
    return ["{", ",\n".join(f'  "{name}": {_value(part)}' for name, part in told.items()), "}"]


def _value(part: Any) -> str:
    if isinstance(part, list) and part and isinstance(part[0], dict):
        items = ",\n".join(f"    {json.dumps(one, ensure_ascii=False)}" for one in part)
        return f"[\n{items}\n  ]"
    return json.dumps(part, ensure_ascii=False)


async def transcript(index: Path) -> list[str]:
    """Five calls, each made of the answers before it."""
    command = StdioServerParameters(command=sys.executable, args=["-m", "airrep", "mcp", "index"], cwd=index.parent)
    command.env = {"PYTHONPATH": str(ROOT / "src")}
    lines: list[str] = []
    async with Client(command) as client:

        async def call(thought: str, name: str, **arguments: Any) -> dict[str, Any]:
            answer = await client.call_tool(name, arguments)
            assert not answer.is_error, answer.content
            told: dict[str, Any] = answer.structured_content
            lines.extend([f"{thought}\n", "```text", f"{name} {json.dumps(arguments)}", *shown(told), "```", ""])
            return told

        await call("What data are these?", "describe_index")
        why = await call("**Why does the model say this?**", "why_this_answer", **ASKED, count=2)
        await call(
            "Does the example that stands out teach the model's answer more strongly than it teaches the right answer?",
            "compare_two_answers",
            **ASKED,
            better="Yes, zucchini can be eaten raw.",
            count=1,
        )
        first = why["hits"][0]["id"]
        await call("It does. What does this example say?", "read_example", id=first)
        await call(
            f"**What should I drop?** What would change without the example about zucchini, `{first}`?",
            "what_if_i_drop",
            **ASKED,
            ids=[first],
        )
    return lines


def main() -> None:
    """Write the page anew."""
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        airrep.build_index(ROOT / "src" / "airrep" / "data" / "train.jsonl", index)
        lines = asyncio.run(transcript(index))
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    PAGE.write_text(before + START + "\n".join(lines) + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
