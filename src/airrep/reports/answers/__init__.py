"""Answers of explain, clean, audit, mix and top as one HTML page.

pages   Answers as one self-contained HTML page, for any of their kinds.
tables  The tables of an answer, for its page.
"""
