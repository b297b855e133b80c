"""Schemas of records: from a raw record to prompts and responses.

conversations  Conversations: messages of any usual form to prompts and responses.
forms          Forms of records: which fields are prompt and response.
preferences    Preference pairs: a prompt, the chosen response, the rejected one.
values         Checks of single values of a record: texts, names, what a value is.
"""
