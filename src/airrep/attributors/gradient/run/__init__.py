"""Methods that read a recorded fine-tune: its end, or all of its steps.

adam          One step of AdamW, forward and back.
less          Attribution by gradients of low-rank adapters: LESS.
metagradient  Attribution by following a whole fine-tune back.
replay        A fine-tune done again, and followed back from losses behind it.
warmed        Methods that read a warm-up of airrep.
"""
