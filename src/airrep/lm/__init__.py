"""The target LM: read, fine-tuned, asked for losses, hidden states and answers.

adapters    Adapters that peft wrote: read, put into a model, compared with their file, merged.
attention   Packed batches of documents, and causal attention inside each document of one.
documents   Tokenised examples: token ids, and where responses start.
files       Load and write the files of a target LM; checks of what is loaded.
fine_tune   Fine-tune a causal LM on packed documents.
folders/    Folders of target LMs: whole, adapters on a base, or a trainer's checkpoints.
lora        Low-rank adapters by the optional package peft.
model       The target LM: fine-tune, per-example loss, hidden states, generate.
network     Forward passes of a causal LM over packed documents, and answers to prompts.
settings    Settings of the target LM and of its fine-tuning.
templates/  Chat templates, which are programs: filled in within limits.
trainer/    Records of training by transformers or trl, and the settings that trainers leave.
warmup      Warm-ups: LMs fine-tuned on a sample of a corpus, made and opened.
"""
