"""Train the small language model that `airrep demo --learn` fine-tunes, from nothing, on freely licensed text.

Usage: python experiments/tiny-lm/train.py EXAMPLES.jsonl WORDNET OUT

EXAMPLES.jsonl has `id`, `prompt` and `response`; the examples of `airrep demo` are left out of it, since the model is
to be fine-tuned on them. WORDNET is the folder with `data.noun`, `data.verb`, `data.adj` and `data.adv` of WordNet
3.0. OUT gets a Hugging Face model folder with float16 weights. One thread is used, so the result does not depend on
the machine's number of processors.
"""

import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

DEMO = Path(__file__).parents[2] / "src" / "airrep" / "data"
PAD, END = "<pad>", "<eos>"
VOCABULARY, WIDTH, LAYERS, INNER, HEADS = 4096, 192, 4, 512, 3
BLOCK, BATCH, EPOCHS, EXAMPLE_COPIES = 256, 32, 1, 6
PEAK, WARM_UP = 2e-3, 50
HELD_OUT = 40


def main(examples: str, wordnet: str, out: str) -> None:
    """Read, train the tokenizer, train the model, write both."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    chats, meanings = read_examples(Path(examples)), read_wordnet(Path(wordnet))
    tokenizer = train_tokenizer(chats + meanings)
    random.shuffle(chats)
    blocks = lay_out(chats[:200], tokenizer, random)[:HELD_OUT]
    texts = chats[200:] * EXAMPLE_COPIES + meanings
    model = train(texts, tokenizer, random, blocks)
    write(model, tokenizer, Path(out))


def read_examples(path: Path) -> list[str]:
    """Texts of all examples that the demo does not use."""
    used = {json.loads(line)["id"] for name in ("train", "queries") for line in (DEMO / f"{name}.jsonl").open()}
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [f"Question: {r['prompt']}\nAnswer: {r['response']}" for r in records if r["id"] not in used]


def read_wordnet(folder: Path) -> list[str]:
    """Every meaning as a question and its answer, with WordNet's example sentences."""
    texts = []
    for kind in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{kind}").read_text(encoding="utf-8").splitlines():
            if not line.startswith("  "):
                fields, gloss = line.split(" | ", 1)
                word = fields.split(" ")[4].split("(")[0].replace("_", " ")
                texts.append(f"Question: What does {word} mean?\nAnswer: {gloss.strip()}")
    return texts


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE without special handling of anything but the end."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def lay_out(texts: list[str], tokenizer: Tokenizer, random: np.random.Generator) -> torch.Tensor:
    """Blocks of tokens: shuffled texts laid end to end, each followed by its end."""
    order = random.permutation(len(texts))
    end = tokenizer.token_to_id(END)
    encoded = tokenizer.encode_batch([texts[place] for place in order])
    tokens = np.concatenate([[*text.ids, end] for text in encoded])
    whole = len(tokens) // BLOCK * BLOCK
    return torch.from_numpy(tokens[:whole].reshape(-1, BLOCK).astype(np.int64))


def new_model() -> LlamaForCausalLM:
    """A Llama with random weights."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config)


def train(texts, tokenizer, random, held_out) -> LlamaForCausalLM:
    """AdamW with warm-up and a cosine to a tenth of the peak; prints the loss on held-out examples."""
    model, begin = new_model(), time.process_time()
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    epochs = [lay_out(texts, tokenizer, random) for _ in range(EPOCHS)]
    batches = [batch for blocks in epochs for batch in blocks.split(BATCH)]
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {sum(b.numel() for b in batches):,} tokens")
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, len(batches))
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0 or step == len(batches) - 1:
            with torch.no_grad():
                unseen = model(input_ids=held_out, labels=held_out).loss
            seconds = time.process_time() - begin
            print(f"step {step} of {len(batches)}: loss {loss:.3f}, held-out {unseen:.3f}, {seconds:.0f} s", flush=True)
    return model


def rate(step: int, steps: int) -> float:
    """The learning rate of a step."""
    if step < WARM_UP:
        return PEAK * (step + 1) / WARM_UP
    return PEAK * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARM_UP) / (steps - WARM_UP))))


def write(model: LlamaForCausalLM, tokenizer: Tokenizer, out: Path) -> None:
    """Write a folder that `AutoModelForCausalLM` and `AutoTokenizer` load."""
    model.half().save_pretrained(out)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END).save_pretrained(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
