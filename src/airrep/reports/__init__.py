"""Results and evaluations as pages, tables and charts.

answers            Tables of answers about training data, and the HTML page of them.
charts             Draws the charts of reports as plain SVG: bars, curves, costs.
citing             Citations of training examples, and tables of where the examples come from.
evaluation_tables  Tables of evaluations, comparisons and diagnoses, for page and terminal.
evaluations        Evaluations as one self-contained HTML page, and figures as files.
page               Self-contained HTML pages: templates, content security policy, safe display of texts.
pushing            Pushes an artifact to the Hugging Face Hub, with a card.
result_tables      Tables of groups, what-ifs and shares of hits.
results            Results of top, group and what-if as one HTML page.
sources            Reads, names and joins the evaluations, comparisons and diagnoses of a report.
tables             Tables for pages and terminal, and the formats of their numbers and texts.
"""
