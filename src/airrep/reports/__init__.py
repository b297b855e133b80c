"""Results and evaluations as pages, tables and charts.

charts             Bars and curves of values, and how charts look.
cost_chart         Value against cost and storage, every point named.
evaluation_tables  Tables of evaluations, and the texts of a row for page and terminal.
evaluations        Evaluations as one self-contained HTML page, and figures as files.
exhibits           Which tables and figures a set of evaluations gives.
figures            Figures drawn by matplotlib as SVG and PNG.
other_tables       Tables of comparisons, diagnoses and plans.
page               Self-contained HTML pages: templates, policy, text made safe.
results            Results as one self-contained HTML page.
results_data       Runs checked, merged by query, ranked and summed for reports.
sources            Evaluations, comparisons and plans to report: found, named, joined.
tables             The one Table of page and terminal, and numbers as text.
"""
