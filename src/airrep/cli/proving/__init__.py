"""Commands that fine-tune to answer: prove, judge.

proving_commands  Commands that fine-tune to answer: prove.
show_proofs       Print proofs and judgements.
"""
