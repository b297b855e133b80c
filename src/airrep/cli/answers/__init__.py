"""Commands that answer questions about training data.

question_commands  Commands that answer questions: clean, audit, mix.
"""
