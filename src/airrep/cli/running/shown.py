"""Short help: for each command an example, and the options that people use."""

from collections.abc import Mapping
from typing import NamedTuple


class Short(NamedTuple):
    """What `--help` shows of a command beside its arguments and its docstring's first sentence."""

    options: str
    """Options, at most five, and those without which it does not run."""
    example: str
    """A command, and what it prints over the data of `airrep demo`."""


SHORT: Mapping[str, Short] = {
    "index": Short(
        "out recipe lm warmed set",
        """$ airrep index train.jsonl --out runs/index
runs/index: built: 2,000 examples, recipe text; next: airrep top runs/index QUERIES""",
    ),
    "append": Short(
        "set",
        """$ airrep append runs/index more.jsonl
runs/index: 50 examples added, 2,050 in all""",
    ),
    "delete": Short(
        "where id compact",
        """$ airrep delete runs/index --where 'source == "gsm8k"' --compact
runs/index: 410 examples deleted, 1,640 left
runs/index: 1,640 examples in 1 shards""",
    ),
    "export": Short(
        "to out where only data",
        """$ airrep export runs/index --to csv --out index.csv
index.csv: 2,000 examples, 6 columns""",
    ),
    "top": Short(
        "prompt response better k why",
        """$ airrep top runs/index --prompt "Can I eat zucchini raw?" --response "No, zucchini should be cooked before eating." -k 1
most helpful for query: Can I eat zucchini raw? → No, zucchini should be cooked before eating.
Stands out: the nearest example teaches 51 % of what a copy of this answer would, and fewer than
   1 in 100 answers that nothing taught come as near.
#1 of 2,000 · train.jsonl:1537 · creak · label fact checking · +22.1 deviations · d1316064c52a6
   …
   → Zucchini is actually a member of the squash family and should be cooked before eating.""",  # noqa: E501
    ),
    "group": Short(
        "by better pool",
        """$ airrep group runs/index queries.jsonl --by source
┃ Group           ┃ Examples ┃ Mean score ┃ Spread ┃ Ranked first ┃ Above mean of ┃
│ 1. aqua         │ 400      │ +2.850     │ 2.444  │ 11 of 50     │ 20 of 50      │
│ 2. gsm8k        │ 400      │ +2.780     │ 1.502  │ 10 of 50     │ 22 of 50      │
…""",
    ),
    "what-if": Short(
        "remove keep better pool why",
        """$ airrep what-if runs/index queries.jsonl --remove 'source == "gsm8k"'
without source == "gsm8k": 400 examples left out, 1,600 kept
Mean change over 50 queries: −0.132. The score falls for 17 (what was left out had been helping) and
rises for 33. Shown: the 20 that change most.""",
    ),
    "select": Short(
        "count out better where by",
        """$ airrep select runs/index queries.jsonl --count 100 --out picked.jsonl
picked.jsonl: 100 examples, the last at rank 3 for its query""",
    ),
    "serve": Short("queries better beside port host", "$ airrep serve runs/index --queries queries.jsonl"),
    "clean": Short(
        "kind lists label where",
        """$ airrep clean runs/index --kind duplicate
Duplicate: repeats an earlier example. 0 of 2,000. …""",
    ),
    "audit": Short(
        "where out json wide replace",
        """$ airrep audit runs/index queries.jsonl
Evaluation items. 50 items: 41 clean, 4 nearly contained, 5 alike in meaning. …""",
    ),
    "mix": Short(
        "by better write",
        """$ airrep mix runs/index queries.jsonl
Weights of sources. Weight: share of the 20 examples that help a query most, mean of 50 queries.
┃ source       ┃ examples ┃ share ┃ weight ┃ 95 % interval  ┃ weight / share ┃
│ creak        │ 400      │ 20.0% │ 25.0%  │ 14.9% to 36.1% │ 1.25           │
…""",
    ),
    "report": Short("out replace", "$ airrep report runs/top --out page.html"),
    "show": Short("verify json k wide", "$ airrep show runs/index\n$ airrep show runs/index train.jsonl:12"),
    "demo": Short("out learn", "$ airrep demo"),
    "rerun": Short("replace", "$ airrep rerun runs/top --replace"),
    "prove": Short("lm rows where better budget", "$ airrep prove runs/index bad.jsonl --lm MODEL --rows e3,e4"),
    "sample": Short(
        "out subsets size queries instances",
        """$ airrep sample train.jsonl --instances 1 --subsets 100 --out runs/subsets
runs/subsets: 1 instance, each of 1,819 examples and 181 queries; 100 subsets of 363, …""",
    ),
    "label": Short("lm out queries seeds", "$ airrep label runs/subsets train.jsonl --lm MODEL --out runs/labels"),
    "warmup": Short(
        "lm out count training set", "$ airrep warmup train.jsonl --lm MODEL --count 100 --out runs/warmed"
    ),
    "push": Short("licence no-texts", "$ airrep push runs/index hf://me/my-index --licence cc-by-4.0"),
    "mcp": Short("port host", "$ airrep mcp runs/index                # an agent starts it, and asks over stdin"),
    "train": Short("data held-out out start steps", "$ airrep train runs/labels --data train.jsonl --out runs/encoder"),
    "adapt": Short("lm out budget labels queries", "$ airrep adapt train.jsonl --lm MODEL --budget 2h --out runs/mine"),
    "compare": Short("to out json replace", "$ airrep compare runs/lds-one runs/lds-two"),
    "evaluate": Short(
        "labels data queries by lm why",
        """$ airrep evaluate A=runs/index B=runs/other --labels L --data train.jsonl
$ airrep evaluate runs/index --queries queries.jsonl --by source
$ airrep evaluate runs/index --queries queries.jsonl --lm MODEL --count 1000""",
    ),
}
"""By the words of a command."""
