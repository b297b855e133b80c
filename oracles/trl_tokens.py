"""Tokens and counted tokens against trl's own data code: every chat template that trl ships, eleven forms of rows.

For each template a folder with the same tiny LM and tokenizer is made. trl's `SFTTrainer` prepares a file of rows, and
airrep reads the same file with that folder's LM. Equal are a form and a template if every row has the same ids, and the
same first counted token. There is nothing to compare where trl itself refuses a row (a template takes no system prompt,
say), nor where airrep refuses what trl trains although its template left the answer out. The clock that templates ask
for the date stands still.
"""

import argparse
import json
import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch

import datasets
import transformers
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from trl import SFTConfig, SFTTrainer

import airrep
from airrep.lm.model import TargetLM

Row: TypeAlias = dict[str, Any]
Tokens: TypeAlias = tuple[list[int], int]
"""Ids of a row, and the place of the first that counts."""

SPECIAL = ["<|bos|>", "<|eos|>", "<|pad|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>"]
ASKED = {"role": "user", "content": "Which town has two harbours?\nName one."}
ANSWER = {"role": "assistant", "content": "Hellevik has two: the old one, and the one of 1911."}
SYSTEM = {"role": "system", "content": "You know the coast. Be brief."}
THANKS = {"role": "user", "content": "And the newer one?"}
SECOND = {"role": "assistant", "content": "It froze in 1947 — for 3.5 weeks."}
TOOL = {
    "type": "function",
    "function": {
        "name": "harbour",
        "description": "Depth of a harbour.",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string", "description": "Its name."}},
            "required": ["town"],
        },
    },
}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "harbour", "arguments": {"town": "Hellevik"}}}],
}
FOUND = {"role": "tool", "name": "harbour", "content": '{"metres": 7.10}'}


def with_thought(message: Row, thought: str) -> Row:
    """The message with a field for what was thought."""
    return message | {"reasoning_content": thought}


FORMS: dict[str, list[Row]] = {
    "plain prompt, completion": [
        {"prompt": "Question: which town?\nAnswer:", "completion": " Hellevik."},
        {"prompt": "Two plus two is", "completion": " four"},
        {"prompt": "The town of Helle", "completion": "vik"},
    ],
    "text": [{"text": "Hellevik has two harbours.\n"}, {"text": "One of them froze in 1947."}],
    "messages, one answer": [{"messages": [ASKED, ANSWER]}, {"messages": [THANKS, SECOND]}],
    "messages, system, two answers": [{"messages": [SYSTEM, ASKED, ANSWER, THANKS, SECOND]}],
    "prompt, completion of messages": [
        {"prompt": [ASKED], "completion": [ANSWER]},
        {"prompt": [ASKED, ANSWER, THANKS], "completion": [SECOND]},
    ],
    "reasoning_content": [
        {"prompt": [ASKED], "completion": [with_thought(ANSWER, "The coast is long.\nTwo harbours: Hellevik.")]},
        {"prompt": [THANKS], "completion": [with_thought(SECOND, "1911, then.")]},
    ],
    "<think> in the content": [
        {
            "prompt": [ASKED],
            "completion": [{"role": "assistant", "content": "<think>\nTwo harbours.\n</think>\n\nHellevik."}],
        }
    ],
    "tools, a call": [{"prompt": [ASKED], "completion": [CALL], "tools": [TOOL]}],
    "tools, an answer": [{"prompt": [ASKED, CALL, FOUND], "completion": [ANSWER], "tools": [TOOL]}],
    "chat_template_kwargs": [
        {
            "prompt": [ASKED],
            "completion": [ANSWER],
            "chat_template_kwargs": {"enable_thinking": False, "thinking": False},
        }
    ],
    "content in parts": [
        {
            "prompt": [{"role": "user", "content": [{"type": "text", "text": "Which town? "}]}],
            "completion": [{"role": "assistant", "content": [{"type": "text", "text": "Hellevik."}]}],
        }
    ],
}


class Outcome(NamedTuple):
    """Outcome of one template and form."""

    template: str
    form: str
    verdict: str
    """``"equal"``, ``"refused"`` by trl, ``"empty"`` of answers, ``"ids"``, ``"counted"`` or ``"airrep refuses"``."""
    why: str = ""


class FirstOfJanuary(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        """The day that airrep gives to templates that ask."""
        return datetime(2025, 1, 1, tzinfo=tz)


def main() -> int:
    """Compare, print, and give the exit status."""
    options = read_options()
    patch("transformers.utils.chat_template_utils.datetime", FirstOfJanuary).start()
    chosen = [path for path in shipped_templates() if options.template in path.stem]
    with tempfile.TemporaryDirectory() as place:
        files = write_forms(Path(place))
        make_model(Path(place) / "base")
        outcomes = [
            outcome for template in chosen for outcome in compare(template, Path(place), files, options.verbose)
        ]
    return report(outcomes, options.floor, options.differences)


def read_options() -> argparse.Namespace:
    """Flags of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--floor", type=float, default=1.0, help="least share of equal pairs among those compared")
    parser.add_argument("--template", default="", help="only templates with this in their name")
    parser.add_argument("--differences", type=int, default=40, help="how many differences to print")
    parser.add_argument("--verbose", action="store_true", help="print both sides where they differ")
    return parser.parse_args()


def shipped_templates() -> list[Path]:
    """trl's chat templates of models, without those that it changed for its masks."""
    folder = Path(trl.__file__).parent / "chat_templates"
    return sorted(path for path in folder.glob("*.jinja") if not path.stem.endswith("_training"))


def write_forms(place: Path) -> dict[str, Path]:
    """A file of rows for each form."""
    files = {form: place / f"{number}.jsonl" for number, form in enumerate(FORMS)}
    for form, path in files.items():
        path.write_text("".join(json.dumps(row) + "\n" for row in FORMS[form]), encoding="utf-8")
    return files


def make_model(folder: Path) -> None:
    """A tiny LM with a byte-level tokenizer whose tokens may join over borders, and which begins every text."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    inner.train_from_iterator([json.dumps(FORMS)], trainer)
    begin = (SPECIAL[0], inner.token_to_id(SPECIAL[0]))
    inner.post_processor = processors.TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=SPECIAL[0], eos_token=SPECIAL[1], pad_token=SPECIAL[2]
    )
    tokenizer.save_pretrained(folder)
    transformers.set_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8192,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def compare(template: Path, place: Path, files: dict[str, Path], verbose: bool) -> Iterator[Outcome]:
    """Each form under one template."""
    folder = with_template(place, template)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    lm = airrep.load_lm({"lm": str(folder), "max_tokens": 8192})
    for form, path in files.items():
        yield compare_form(template.stem, form, path, model, tokenizer, lm, verbose)


def with_template(place: Path, template: Path) -> Path:
    """A folder with the files of the tiny LM and a chat template."""
    folder = place / template.stem
    folder.mkdir()
    for path in (place / "base").iterdir():
        if path.name != "chat_template.jinja":
            (folder / path.name).write_bytes(path.read_bytes())
    (folder / "chat_template.jinja").write_bytes(template.read_bytes())
    return folder


def compare_form(
    template: str, form: str, path: Path, model: Any, tokenizer: Any, lm: TargetLM, verbose: bool
) -> Outcome:
    """Return what both sides make of a file."""
    try:
        theirs = trl_tokens(path, model, tokenizer)
    except Exception as error:  # a template is a program: it may raise anything
        return Outcome(template, form, "refused", short(error))
    try:
        ours = airrep_tokens(path, lm)
    except Exception as error:  # a crash of ours is a difference too
        empty = isinstance(error, airrep.AirRepError) and leaves_out(theirs, form, tokenizer)
        return Outcome(template, form, "empty" if empty else "airrep refuses", short(error))
    verdict = judge(ours, theirs)
    if verdict != "equal" and verbose:
        show(template, form, ours, theirs, tokenizer)
    return Outcome(template, form, verdict)


def leaves_out(theirs: Sequence[Tokens], form: str, tokenizer: Any) -> bool:
    """Tell whether trl learns no word of any answer of a form."""
    learnt = " ".join(tokenizer.decode(ids[start:]) for ids, start in theirs)
    answers = [message for row in FORMS[form] for message in row.get("completion", row.get("messages", []))]
    words = [call["function"]["name"] for answer in answers for call in answer.get("tool_calls", ())]
    words += [str(answer["content"])[-8:] for answer in answers if answer.get("content")]
    return not any(word in learnt for word in words)


def trl_tokens(path: Path, model: Any, tokenizer: Any) -> list[Tokens]:
    """Ids and first counted token of each row, as trl's trainer holds them."""
    rows = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(path.parent / "cache"))
    with tempfile.TemporaryDirectory() as out:
        settings = SFTConfig(output_dir=out, max_length=None, report_to=[], use_cpu=True, bf16=False)
        trainer = SFTTrainer(model=model, args=settings, train_dataset=rows, processing_class=tokenizer)
    return [with_start(row["input_ids"], row["labels"]) for row in trainer.train_dataset]


def with_start(ids: list[int], labels: list[int]) -> Tokens:
    """Ids and the first token that counts; all behind it must. The first token is read, never predicted."""
    start = next((place for place, label in enumerate(labels) if label != -100), len(labels))
    if labels[start:] != ids[start:]:
        raise ValueError("what counts is not the end of the row")
    return ids, max(1, start)


def airrep_tokens(path: Path, lm: TargetLM) -> list[Tokens]:
    """Ids and first counted token of each row, as airrep's LM reads them."""
    documents = lm.tokenise(airrep.read_corpus(path, trained_with="trl"))
    starts = [int(start) for start in documents.starts]
    return [([int(token) for token in documents.sequence(row)], start) for row, start in enumerate(starts)]


def judge(ours: Sequence[Tokens], theirs: Sequence[Tokens]) -> str:
    """``"equal"``, or what differs."""
    if [ids for ids, _ in ours] != [ids for ids, _ in theirs]:
        return "ids"
    return "equal" if list(ours) == list(theirs) else "counted"


def show(template: str, form: str, ours: Sequence[Tokens], theirs: Sequence[Tokens], tokenizer: Any) -> None:
    """Both sides of the rows that differ: read, then counted."""
    for row, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        if mine != other:
            say(f"-- {template}, {form}, row {row} (of {len(ours)} and {len(theirs)})")
            for name, (ids, start) in (("airrep", mine), ("trl", other)):
                say(f"   {name:6} {tokenizer.decode(ids[:start])!r} | {tokenizer.decode(ids[start:])!r}")


def say(line: str) -> None:
    """A line of the report."""
    sys.stdout.write(f"{line}\n")


def short(error: Exception) -> str:
    """One line of an error."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:140]}"


def report(outcomes: Sequence[Outcome], floor: float, most: int) -> int:
    """A line for each form, and the differences; 1 if fewer than the floor are equal."""
    compared = [outcome for outcome in outcomes if outcome.verdict not in ("refused", "empty")]
    for form in FORMS:
        of_form = Counter(outcome.verdict for outcome in outcomes if outcome.form == form)
        apart = of_form["refused"] + of_form["empty"]
        say(
            f"trl {trl.__version__}  {form:32} {of_form['equal']:3} of {of_form.total() - apart:2} equal "
            f"({of_form['refused']} refused by trl, {of_form['empty']} without the answer)"
        )
    for outcome in [outcome for outcome in compared if outcome.verdict != "equal"][:most]:
        say(f"   {outcome.verdict:14} {outcome.template:26} {outcome.form:32} {outcome.why}")
    share = sum(outcome.verdict == "equal" for outcome in compared) / max(1, len(compared))
    say(f"{share:.1%} of {len(compared)} pairs are equal (at least {floor:.1%})  {'ok' if share >= floor else 'FAIL'}")
    return int(share < floor)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    datasets.disable_progress_bars()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    sys.exit(main())
