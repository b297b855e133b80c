"""Data selection, judged by what a fine-tuned LM answers.

answers      Answers of an LM that is fine-tuned on one selection after another.
competitors  Competitors of a data selection, and the examples each selects for each task.
f1           Unigram F1 of answers, for every competitor of a data selection.
select       Data selection, judged by what a fine-tuned LM then answers.
tasks        Settings and tasks of a data selection: queries to answer and to select by.
"""
