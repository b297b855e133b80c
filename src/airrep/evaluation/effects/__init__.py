"""Drop the examples that a method names and retrain; trace facts to their sources.

drop    Fine-tune without each query's top examples, against as many random ones.
refits  Fine-tune on given sets of examples, and study the queries' losses after each.
trace   Rank the examples that taught given facts; one step on each top example.
"""
