"""Data selection, judged by what a fine-tuned LM answers.

answers      Fine-tune one LM on one selection after another; let it answer.
competitors  Which examples each competitor fine-tunes on, task by task.
f1           Unigram F1 of answers, for every competitor of a data selection.
select       Data selection, judged by what a fine-tuned LM then answers.
tasks        Settings and tasks of a data selection: queries to answer and to select by.
"""
