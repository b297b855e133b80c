"""Methods that read a recorded fine-tune: its end, or all of its steps.

less          Attribution by gradients of low-rank adapters: LESS.
metagradient  Attribution by following a whole fine-tune back.
replay        A fine-tune by AdamW done again, and followed back from losses behind it.
warmed        Methods that read a warm-up of airrep.
"""
