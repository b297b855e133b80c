"""Methods that read a recorded fine-tune: its end, or all of its steps.

less          Attribution by gradients of low-rank adapters: LESS.
metagradient  Attribution by following a whole fine-tune by AdamW back.
warmed        Methods that read a warm-up of airrep.
"""
