"""Train the encoder on labels by the ranking loss; linear models too.

examples      Labelled instances as token ids, and the draws of them that steps see.
linear/       Linear models learnt from labels: datamodels and recipes.
ranking_loss  The weighted pairwise ranking loss.
result        The folder of a trained encoder: claimed, sealed, opened; its card.
settings      Settings of encoder training.
start         The encoder that training starts from, its head and its scale.
state         State of a training run: AdamW and its schedule, checkpoints, the log of steps.
step          One step's exact gradient: pooled group scores, and each example encoded once.
train         Train the encoder to rank subsets by their labels, step by step.
trunk         Layers that learn, over stored activations of the frozen layers below.
"""
