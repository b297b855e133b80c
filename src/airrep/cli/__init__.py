"""The command line: a file for each group of commands.

app                The command line: all commands, and show, report, push, demo.
demo               The demos, on data that come with airrep.
evaluate_commands  Commands that judge methods by labels, and compare what was judged.
flags              Settings on the command line: flags of their fields, and what --set takes.
index_commands     Commands that build, change and export an index.
label_commands     Commands before training: sample, label, warmup.
options            Options that several commands share.
prove_commands     Commands that fine-tune to answer: prove.
query_commands     Commands that ask an index: top, group, what-if, select, serve, mcp.
question_commands  Commands that answer questions: clean, audit, mix.
running/           Whole runs: commands that record themselves, configs that replay them.
show/              Printing results on the terminal.
train_commands     Commands that train an encoder: train, adapt.
"""
