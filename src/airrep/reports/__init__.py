"""Results and evaluations as pages, tables and charts.

charts             Bars and curves of values, and how charts look.
cost_chart         Value against cost and storage, every point named.
evaluation_tables  Tables of evaluations: values, intervals, differences, costs.
evaluations        Evaluations as one self-contained HTML page, and figures as files.
exhibits           Which tables and figures a set of evaluations gives.
figures            Figures drawn by matplotlib as SVG and PNG.
other_tables       Tables of plans, comparisons, diagnoses, votes, tasks and curves.
page               Self-contained HTML pages: templates, policy, text made safe.
results            Results as one self-contained HTML page.
results_data       Runs checked, merged by query, ranked and summed for reports.
sources            Evaluations, comparisons and plans to report: found, named, joined.
tables             Tables ready to be shown, and numbers as text.
"""
