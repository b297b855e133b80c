"""Schemas of records: from a raw record to prompts and responses.

conversations  Turns messages in the usual formats into prompts and responses; shortens prompts for display.
forms          Finds the fields of a record that hold prompt and response.
trainers       How each supported trainer reads rows: the texts joined, the tokens learned.
values         Checks single values of a record: texts, names, encodings, roles, training marks.
"""
