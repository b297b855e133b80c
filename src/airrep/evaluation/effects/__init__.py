"""Drop the examples that a method names and retrain; trace facts to their sources.

refits  Fine-tune on sets of examples, or without top ones; study the losses after.
trace   Rank the examples that taught given facts; one step on each top example.
"""
