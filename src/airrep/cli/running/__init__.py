"""Whole runs: commands that record themselves, configs that replay them.

history  The commands that made an artifact: recorded in it, shown, run again.
once     Commands: errors in one line, dropped names, short help, records of results.
"""
