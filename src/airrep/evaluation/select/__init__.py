"""Data selection, judged by what a fine-tuned LM answers.

answers      Answers of an LM that is fine-tuned on selections; unigram F1.
competitors  Tasks and competitors of a data selection, and what each selects.
select       Data selection, judged by what a fine-tuned LM then answers.
"""
