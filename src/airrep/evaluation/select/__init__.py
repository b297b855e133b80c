"""Data selection, judged by what a fine-tuned LM answers.

answers      Fine-tune one LM on one selection after another; let it answer.
competitors  Competitors of a data selection, and the examples each fine-tunes on.
f1           Unigram F1 of answers, for every competitor of a data selection.
select       Data selection, judged by what a fine-tuned LM then answers.
tasks        Settings and tasks of a data selection: queries to answer and to select by.
"""
