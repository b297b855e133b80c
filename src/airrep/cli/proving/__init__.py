"""Commands that fine-tune to answer: prove, judge.

proving_commands  Commands that fine-tune to answer: prove, judge.
show_proofs       Print proofs and judgements.
"""
