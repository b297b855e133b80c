"""Methods that read a recorded fine-tune: its end, or all of its steps.

less          Attribution by gradients of low-rank adapters: LESS.
metagradient  Attribution by differentiating through a whole fine-tune with AdamW.
warmed        Base class of methods that read what `airrep warmup` wrote.
"""
