"""Tokens and counted tokens against the data code of axolotl, LLaMA-Factory and ms-swift: ten rows of each form.

For two chat templates that trl ships, ChatML of Qwen 2.5 (with two ends of text) and Llama 3, a folder with a tiny LM
and its tokenizer is made. A trainer prepares rows with the template (axolotl) or with its own of the same family (the
other two), and airrep reads the same rows. These trainers make one row of a conversation, with each answer learnt;
airrep makes an example of each answer. So an answer is equal if its example has the ids of the trainer's row up to
where the answer's learnt tokens end, and the same learnt tokens there. A row is equal if all its answers are.

    python oracles/other_tokens.py axolotl --verbose
"""

import argparse
import json
import logging
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

os.environ |= {"DISABLE_VERSION_CHECK": "1", "MODELSCOPE_OFFLINE": "1", "TQDM_DISABLE": "1"}
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import datasets  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers  # noqa: E402

import airrep  # noqa: E402
from airrep.errors import DataError  # noqa: E402
from airrep.lm.model import TargetLM  # noqa: E402

Row: TypeAlias = dict[str, Any]
Spans: TypeAlias = list[tuple[list[int], int]]
"""Each learnt answer's ids up to its last learnt token, and the place of its first."""
Reader: TypeAlias = Callable[[Row], tuple[list[int], list[int]]]
"""Ids and labels of a row."""

TOWNS = ("Hellevik", "Ny-Ålesund", "Vardø", "A", "Two harbours", "Bø", "Å", "St. Ives", "Rørvik", "Kirkenes (old)")
TOOL = {
    "name": "depth",
    "description": "Depth of a harbour.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
}


def turns(*said: str, first: str = "user") -> list[Row]:
    """Messages by turns, the user's first, or a system prompt before them."""
    roles = ("user", "assistant") * len(said)
    roles = (first, *roles) if first == "system" else roles
    return [{"role": role, "content": content} for role, content in zip(roles, said, strict=False)]


def shared(messages: Sequence[Row]) -> list[Row]:
    """Messages as ShareGPT has them."""
    names = {"user": "human", "assistant": "gpt"}
    return [{"from": names.get(one["role"], one["role"]), "value": one["content"]} for one in messages]


def rows_of(town: str) -> dict[str, Row]:
    """A row of each form."""
    ask, say_, more, end = f"Which harbours has {town}?", f"{town} has two.\nBoth are old.", "And now?", "One, in 1947."
    talk = turns(ask, say_, more, end)
    alpaca = {"instruction": f"Name the harbours of {town}.", "input": "", "output": say_}
    marked = [*talk[:1], talk[1] | {"train": False, "loss": False}, *talk[2:]]
    call = {"name": "depth", "arguments": {"town": town}}
    calls = [
        talk[0],
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": call}]},
        {"role": "tool", "content": '{"metres": 7}'},
        talk[1],
    ]
    return {
        "Alpaca": alpaca,
        "Alpaca with input": alpaca | {"input": f"{town}, north"},
        "Alpaca with system": alpaca | {"system": "Be brief."},
        "Alpaca with history": alpaca | {"history": [[ask, say_], [more, end]]},
        "messages": {"messages": talk[:2]},
        "messages, two answers": {"messages": talk},
        "messages, long answer": {"messages": turns(ask, " ".join([say_] * 20))},
        "messages, long question": {"messages": turns(" ".join([ask] * 20), say_)},
        "messages, both long": {"messages": turns(" ".join([ask] * 9), " ".join([say_] * 14))},
        "messages, system": {"messages": turns("Be brief.", ask, say_, more, end, first="system")},
        "messages, two of the user's": {"messages": [talk[0], talk[2], talk[1]]},
        "messages, spaces around": {"messages": turns(ask, f"  {town} has two.\n")},
        "messages, a turn not learnt": {"messages": marked},
        "messages, thoughts in the text": {"messages": turns(ask, f"<think>\n{town}…\n</think>\n\n{say_}")},
        "messages, reasoning_content": {"messages": [talk[0], talk[1] | {"reasoning_content": f"{town}…"}]},
        "messages, tool calls": {"messages": calls, "tools": [{"type": "function", "function": TOOL}]},
        "ShareGPT": {"conversations": shared(talk)},
        "text": {"text": f"{say_}\n{end}"},
        "segments": {"segments": [{"label": place % 2 == 1, "text": one["content"]} for place, one in enumerate(talk)]},
    }


LIMIT, LONG = 160, 4096
"""Tokens of a row that trainers read: of the forms that are called long, and of others."""
FORMS = {form: [rows_of(town)[form] for town in TOWNS] for form in rows_of("")}


class Family(NamedTuple):
    """A chat template: trl's file, its end of a turn, and names of the trainers' own of the same family."""

    file: str
    end: str
    llamafactory: str
    swift: str


FAMILIES = {
    "ChatML": Family("qwen2_5.jinja", "<|im_end|>", "qwen", "qwen2_5"),
    "ChatML, other end": Family("qwen2_5.jinja", "<|endoftext|>", "qwen", "qwen2_5"),
    "Llama 3": Family("llama3.jinja", "<|eot_id|>", "llama3", "llama3"),
}
_MARKS = ["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
SPECIAL = ["<|begin_of_text|>", "<|endoftext|>", *_MARKS]


def make_lm(folder: Path, family: Family) -> Any:
    """A tiny LM with a byte-level tokenizer whose tokens may join over borders; its tokenizer."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        [json.dumps(FORMS, ensure_ascii=False)],
        trainers.BpeTrainer(vocab_size=420, special_tokens=SPECIAL, initial_alphabet=alphabet),
    )
    begins = {} if family.swift == "qwen2_5" else {"bos_token": SPECIAL[0]}
    if begins:
        begin = (SPECIAL[0], inner.token_to_id(SPECIAL[0]))
        inner.post_processor = processors.TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin])
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=family.end, pad_token=SPECIAL[0], additional_special_tokens=_MARKS, **begins
    )
    made.chat_template = (Path(trl.__file__).parent / "chat_templates" / family.file).read_text(encoding="utf-8")
    made.save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=len(made),
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8192,
        eos_token_id=made.eos_token_id,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return made


class Place(NamedTuple):
    """Task of a reader: the folder of a tiny LM, its tokenizer, its chat template, and a form of rows."""

    folder: Path
    tokenizer: Any
    family: Family
    form: str

    @property
    def limit(self) -> int:
        """Longest row."""
        return LIMIT if "long" in self.form else LONG


def axolotl_reader(place: Place) -> Reader | None:
    """How axolotl reads a place.form: each has a strategy of its own."""
    from axolotl.prompt_strategies import chat_template, completion, input_output
    from axolotl.prompt_tokenizers import AlpacaPromptTokenizingStrategy
    from axolotl.prompters import AlpacaPrompter
    from axolotl.utils.dict import DictDefault

    settings = DictDefault({"train_on_inputs": False, "sequence_len": LONG})
    if place.form in ("Alpaca", "Alpaca with input"):
        strategy = AlpacaPromptTokenizingStrategy(AlpacaPrompter(), place.tokenizer, False, 4096)
    elif place.form == "text":
        strategy = completion.load(place.tokenizer, settings)
    elif place.form == "segments":
        strategy = input_output.load(place.tokenizer, settings)
    elif place.form.startswith("Alpaca") or place.limit == LIMIT:  # what drops long rows asks for all that it requires
        return None
    elif place.form == "ShareGPT":
        names = {"role": "from", "content": "value"}
        given = {"field_messages": "conversations", "message_property_mappings": names}
        strategy = chat_template.load(place.tokenizer, settings, given)
    else:
        strategy = chat_template.load(place.tokenizer, settings, {"message_field_training": "train"})

    def read(row: Row) -> tuple[list[int], list[int]]:
        made = strategy.tokenize_prompt({name: [value] for name, value in row.items()} if place.form == "text" else row)
        flat = {name: value[0] if place.form == "text" else value for name, value in made.items()}
        return flat["input_ids"], flat["labels"]

    return read


def llamafactory_reader(place: Place) -> Reader | None:
    """How LLaMA-Factory reads a place.form: columns and tags as its documentation gives them."""
    sys.modules.setdefault("torchaudio", _stub("torchaudio"))
    from llamafactory.data.converter import get_dataset_converter
    from llamafactory.data.parser import DatasetAttr
    from llamafactory.data.processor.supervised import SupervisedDatasetProcessor
    from llamafactory.data.template import get_template_and_fix_tokenizer
    from llamafactory.hparams import DataArguments

    if place.form in ("text", "segments") or "reasoning_content" in place.form or "not learnt" in place.form:
        return None
    settings = DataArguments(template=place.family.llamafactory, cutoff_len=place.limit)
    template = get_template_and_fix_tokenizer(place.tokenizer, settings)
    kind = DatasetAttr("file", dataset_name="rows")
    kind.join(_columns(place.form))
    convert = get_dataset_converter(kind.formatting, kind, settings)
    processor = SupervisedDatasetProcessor(template, place.tokenizer, None, settings)

    def read(row: Row) -> tuple[list[int], list[int]]:
        found = convert(row)
        if not found["_prompt"]:
            raise ValueError("the row is dropped")
        made = processor.preprocess_dataset({name: [value] for name, value in found.items()})
        return made["input_ids"][0], made["labels"][0]

    return read


def _columns(form: str) -> Row:
    """Entry of ``dataset_info.json``."""
    if form.startswith("Alpaca"):
        names = {"prompt": "instruction", "query": "input", "response": "output"}
        more = {name: name for name in ("system", "history") if form.endswith(name)}
        return {"columns": names | more}
    if form == "ShareGPT":
        return {"formatting": "sharegpt", "columns": {"messages": "conversations"}}
    roles = {"user_tag": "user", "assistant_tag": "assistant", "system_tag": "system", "observation_tag": "tool"}
    tags = {"role_tag": "role", "content_tag": "content", "function_tag": "function", **roles}
    tools = {"tools": "tools"} if "tool" in form else {}
    kind = "openai" if tools else "sharegpt"
    return {"formatting": kind, "columns": {"messages": "messages"} | tools, "tags": tags}


def _stub(name: str) -> ModuleType:
    """A module that LLaMA-Factory asks for and text does not need."""
    from importlib.machinery import ModuleSpec

    made = ModuleType(name)
    made.__spec__ = ModuleSpec(name, None)
    return made


def swift_reader(place: Place) -> Reader | None:
    """How ms-swift reads a form: by the names of its columns."""
    from swift.dataset.preprocessor import AutoPreprocessor
    from swift.model import get_processor
    from swift.template import get_template
    from swift.template.base import MaxLengthError

    if place.form == "segments":
        return None
    processor = get_processor(str(place.folder), model_type="llama")
    template = get_template(processor, template_type=place.family.swift, max_length=place.limit)
    template.set_mode("train")

    def read(row: Row) -> tuple[list[int], list[int]]:
        (found,) = AutoPreprocessor()(datasets.Dataset.from_list([row]), enable_auto_mapping=True)
        try:
            made = template.encode(dict(found))
        except MaxLengthError:  # by default such rows are left out
            return [], []
        return made["input_ids"], made["labels"]

    return read


READERS = {"axolotl": axolotl_reader, "llamafactory": llamafactory_reader, "ms-swift": swift_reader}
FLOORS = {"axolotl": 1.0, "llamafactory": 0.952, "ms-swift": 0.851}
"""Least share of equal rows, as measured; what differs, and why, is in README.md."""


class Outcome(NamedTuple):
    """Outcome of one form under one template."""

    family: str
    form: str
    verdicts: Counter[str]
    why: str


def spans(ids: list[int], labels: list[int]) -> Spans:
    """Each stretch of learnt tokens; the first token of a row is read, never predicted."""
    learnt = [place > 0 and label != -100 for place, label in enumerate(labels)]
    edges = [place for place in range(len(learnt)) if learnt[place] and not learnt[place - 1]]
    ends = [next((end for end in range(start, len(ids)) if not learnt[end]), len(ids)) for start in edges]
    return [(list(ids[:end]), start) for start, end in zip(edges, ends, strict=True)]


def airrep_spans(row: Row, trainer: str, lm: TargetLM) -> Spans:
    """Return the same of airrep's examples."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rows.jsonl"
        path.write_text(json.dumps(row) + "\n", encoding="utf-8")
        found = [airrep_answer(example, lm) for example in airrep.read_corpus(path, trained_with=trainer)]
    return [one for one in found if one is not None]


def airrep_answer(example: airrep.Example, lm: TargetLM) -> tuple[list[int], int] | None:
    """Ids and first learnt place of an example; None if its template leaves it out."""
    try:
        documents = lm.tokenise([example])
    except DataError as error:
        if "leaves its response out" in str(error) or "(cut is drop)" in str(error):
            return None
        raise
    return [int(token) for token in documents.sequence(0)], int(documents.starts[0])


def judge(ours: Spans, theirs: Spans) -> str:
    """``"equal"``, or what differs: how many answers are learnt, what is read, or what is learnt of it."""
    if ours == theirs:
        return "equal"
    if len(ours) != len(theirs):
        return "answers"
    same = all(mine[: len(other)] == other[: len(mine)] for (mine, _), (other, _) in zip(ours, theirs, strict=True))
    return "learnt" if same else "ids"


def airrep_cut(trainer: str) -> str:
    """Return what the preset of a trainer cuts of a long row."""
    from airrep.corpus.schemas.trainers import trainer_of

    return trainer_of(trainer).cut


def compare(trainer: str, chosen: str, verbose: bool) -> Iterator[Outcome]:
    """Each form that the trainer reads, under each template."""
    for name, family in FAMILIES.items():
        with tempfile.TemporaryDirectory() as place:
            tokenizer = make_lm(Path(place), family)
            for form in [form for form in FORMS if chosen in form]:
                limit, cut = LIMIT if "long" in form else LONG, airrep_cut(trainer)
                lm = airrep.load_lm({"lm": place, "max_tokens": limit, "cut": cut})
                reader = READERS[trainer](Place(Path(place), tokenizer, family, form))
                if reader is not None:
                    yield compare_form(trainer, (name, form), reader, lm, tokenizer if verbose else None)


def compare_form(trainer: str, place: tuple[str, str], reader: Reader, lm: TargetLM, shown: Any | None) -> Outcome:
    """The rows of a form; with a tokenizer the first that differs is shown."""
    verdicts: Counter[str] = Counter()
    why = ""
    for row in FORMS[place[1]]:
        try:
            theirs = spans(*reader(row))
        except Exception as error:  # a refusal, of whatever kind
            verdicts["refused"] += 1
            why = why or short(error)
            continue
        try:
            ours = airrep_spans(row, trainer, lm)
            verdict = judge(ours, theirs)
        except Exception as error:  # a crash of ours is a difference too
            verdict, ours = "airrep refuses", []
            why = why or short(error)
        verdicts[verdict] += 1
        if shown is not None and verdict != "equal" and verdicts[verdict] == 1:
            show(place, verdict, {"airrep": ours, trainer: theirs}, shown)
    return Outcome(*place, verdicts, why)


def show(place: tuple[str, str], verdict: str, sides: dict[str, Spans], tokenizer: Any) -> None:
    """Both sides of a row that differs: read, then learnt."""
    say(f"-- {place[0]}, {place[1]}: {verdict}")
    for name, side in sides.items():
        for ids, start in side:
            say(f"   {name:12} {tokenizer.decode(ids[:start])!r} | {tokenizer.decode(ids[start:])!r}")


def say(line: str) -> None:
    """A line of the report."""
    sys.stdout.write(f"{line}\n")


def short(error: Exception) -> str:
    """One line of an error."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:140]}"


def report(trainer: str, outcomes: Sequence[Outcome], floor: float) -> int:
    """A line for each form and template; 1 if fewer than the floor are equal."""
    for one in outcomes:
        others = ", ".join(f"{count} {name}" for name, count in one.verdicts.items() if name != "equal")
        compared = one.verdicts.total() - one.verdicts["refused"]
        head = f"{trainer:13}{one.family:18}{one.form:32}{one.verdicts['equal']:3} of {compared:2} equal"
        say(f"{head}  {others} {one.why}".rstrip())
    total = sum((one.verdicts for one in outcomes), Counter[str]())
    compared = total.total() - total["refused"]
    share = total["equal"] / max(1, compared)
    say(f"{share:.1%} of {compared} rows are equal (at least {floor:.1%})  {'ok' if share >= floor else 'FAIL'}")
    return int(share < floor)


def main() -> int:
    """Compare, print, and give the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trainer", choices=READERS)
    parser.add_argument("--form", default="", help="only forms with this in their name")
    parser.add_argument("--floor", type=float, help="least share of equal rows; the measured one by default")
    parser.add_argument("--verbose", action="store_true", help="print both sides of the first row that differs")
    options = parser.parse_args()
    datasets.disable_progress_bars()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    outcomes = list(compare(options.trainer, options.form, options.verbose))
    floor = FLOORS[options.trainer] if options.floor is None else options.floor
    return report(options.trainer, outcomes, floor)


if __name__ == "__main__":
    sys.exit(main())
