"""The target LM: read, fine-tuned, asked for losses, hidden states and answers.

attention  Causal attention inside each document of a packed batch.
chat       Apply the chat template to an example: tokens as the target LM reads them.
documents  Tokenised examples, and packed batches of them for causal LMs.
files      Find, load and check the files of a target LM.
fine_tune  Fine-tune a causal LM on packed documents.
generate   Let a causal LM answer prompts.
lora       Low-rank adapters by the optional package peft.
model      The target LM: fine-tune, per-example loss, hidden states, generate.
network    Forward passes of a causal LM over packed documents.
settings   Settings of the target LM and of its fine-tuning.
warmup     Warm-ups: LMs fine-tuned on a sample of a corpus, made and opened.
"""
