"""Schemas of records: from a raw record to prompts and responses.

conversations  Conversations: messages of any usual form to prompts and responses, and shortened prompts.
forms          Forms of records: which fields are prompt and response.
trainers       Trainers' ways of reading rows: the texts they join, the tokens they learn.
values         Checks of single values of a record: texts, names, encodings, roles, marks.
"""
