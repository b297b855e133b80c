"""The target LM: read, fine-tuned, asked for losses, hidden states and answers.

attention         Packed batches of documents, and causal attention inside each document.
chat              Render and tokenise examples as the target LM's trainer does.
documents         Tokenised examples: token ids, starts of responses, and what losses need besides.
files             Load and write the files of a target LM; checks of what is loaded.
folders/          Folders of target LMs: whole, adapters on a base, or a trainer's checkpoints.
held              Weights kept as stored, and converted to float32 one linear map at a time.
lora              Low-rank adapters by the optional package peft: trained, read, checked, merged.
model             The target LM: fine-tune, per-example loss, hidden states, generate.
network           Passes of a causal LM over packed documents: losses, fine-tunes, hidden states, answers.
packed            Weights kept as their files hold them: quantised weights and fused experts.
settings          Settings of the target LM and of its fine-tuning.
trainer_records/  Records of training by transformers or trl, and the settings that trainers leave.
warmup            Make and open warm-ups: LMs fine-tuned on a sample of a corpus.
"""
