#!/usr/bin/env bash
# The guess: `cutoff_len` cuts a row that is too long at one end, as most libraries do: the end of the answer is lost,
# or the beginning of the question.
#
# What happens: LLaMA-Factory cuts the question and the answer separately, each at its end, and then joins them. If the
# answer is short, only the question is cut: the model learns the whole answer right after the middle of the question,
# without the end of the question and without the marker that opens an assistant's turn. Of a longer answer, the end
# goes too. In a conversation the first turns fill the row; the last answer, often the one that matters, is not trained.
# With `mask_history` the last turn comes first, earlier turns are cut in this way, and the system text can be lost.
# There is no warning.
#
# llamafactory 0.9.5, transformers 5.6.0, datasets 4.0.0, torch 2.13.0; 2026-11-30. It imports torchaudio, but uses it
# for sound only; here that is an empty module.
# Seen with cutoff_len=16 and the template "default"; what is learned is in brackets:
#     long question, short answer    Human: q0 ... q12 [yes </s>]
#     long question, long answer     Human: q0 ... q7 [a0 ... a6]
#     three turns                    System: s0 s1 </s> Human: q0 q1 q2 </s> Assistant: [a0 a1 a2 </s>] Human: q3
#     three turns, mask_history      Human: q3 q4 q5 </s> a3 a4 a5 </s> Human: Answer this: </s> Assistant: [yes </s>]
#
# For you: rows longer than `cutoff_len` teach answers to questions that are not in the file. Count them with the
# template and the tokenizer, and remove or shorten them before you train.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check "$@"; }
pip torch==2.13.0
pip transformers==5.6.0 datasets==4.0.0 accelerate==1.11.0 peft==0.18.1 trl==0.24.0
pip omegaconf==2.3.0 sentencepiece==0.2.1 pillow==12.0.0
pip --no-deps llamafactory==0.9.5

cd "$place"
export HF_HOME="$place/cache" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TQDM_DISABLE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1
touch torchaudio.py
cat > cut.py <<'PY'
import json

from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
from llamafactory.hparams import DataArguments, ModelArguments
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Seq2SeqTrainingArguments

WORDS = ["<unk>", "<s>", "</s>", "System:", "Human:", "Assistant:", "Answer", "this:", "yes"]
WORDS += [f"{kind}{count}" for kind in "sqa" for count in range(20)]


def words(kind, first, last):
    """Words of one kind by number."""
    return " ".join(f"{kind}{count}" for count in range(first, last))


alone = {"history": [], "system": ""}
turns = {"history": [[words("q", 0, 3), words("a", 0, 3)], [words("q", 3, 6), words("a", 3, 6)]], "system": "s0 s1"}
rows = [
    {"instruction": words("q", 0, 20) + " Answer this:", "output": "yes", **alone},
    {"instruction": words("q", 0, 20) + " Answer this:", "output": words("a", 0, 20), **alone},
    {"instruction": "Answer this:", "output": "yes", **turns},
]
columns = {"prompt": "instruction", "response": "output", "history": "history", "system": "system"}
with open("rows.json", "w") as file:
    json.dump(rows, file)
with open("dataset_info.json", "w") as file:
    json.dump({"rows": {"file_name": "rows.json", "columns": columns}}, file)


def read(**more):
    """Each row as it is trained, with what is learned in brackets."""
    model = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=model, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    data = DataArguments(template="default", dataset="rows", dataset_dir=".", cutoff_len=16, **more)
    template = get_template_and_fix_tokenizer(tokenizer, data)
    training = Seq2SeqTrainingArguments("out", report_to=[], use_cpu=True)
    sets = get_dataset(template, ModelArguments("none"), data, training, stage="sft", tokenizer=tokenizer)
    texts = []
    for row in sets["train_dataset"]:
        pairs = zip(row["input_ids"], row["labels"])
        marked = [WORDS[word] if label < 0 else f"[{WORDS[word]}]" for word, label in pairs]
        texts.append(" ".join(marked).replace("] [", " "))
    return texts


plain, masked = read(), read(mask_history=True)
for text in (*plain, masked[2]):
    print(text)
assert plain[0] == f"Human: {words('q', 0, 13)} [yes </s>]"
assert plain[1] == f"Human: {words('q', 0, 8)} [{words('a', 0, 7)}]"
assert plain[2] == "System: s0 s1 </s> Human: q0 q1 q2 </s> Assistant: [a0 a1 a2 </s>] Human: q3"
assert masked[2] == "Human: q3 q4 q5 </s> a3 a4 a5 </s> Human: Answer this: </s> Assistant: [yes </s>]"
PY
PYTHONPATH=. venv/bin/python -W ignore cut.py
