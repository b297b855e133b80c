"""Results and evaluations as pages, tables and charts.

answers            Answers: their tables, and the page of them.
charts             The charts of reports as plain SVG: bars, curves, costs.
citing             Citations of an index, and tables of where results' examples come from.
evaluation_tables  Tables of evaluations, comparisons and diagnoses, for page and terminal.
evaluations        Evaluations as one self-contained HTML page, and figures as files.
page               Self-contained HTML pages: templates, policy, text made safe.
pushing            Push an artifact to the Hugging Face Hub, with a card of it.
result_tables      Tables of groups, what-ifs and shares of hits.
results            Results of top, group and what-if as one HTML page.
sources            Evaluations, comparisons and diagnoses to report: found, named, joined.
tables             The one Table of page and terminal; numbers and texts as shown.
"""
