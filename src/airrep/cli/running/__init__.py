"""Whole runs: commands that record themselves, configs that replay them.

config        Configs of whole runs: read, checked, printed.
files         Files that the steps of a config made, told beside it.
history       History of an artifact: the commands that made and changed it.
manifests     Steps of artifacts without history, as far as their manifests tell.
once          Commands that tell in one line what is wrong with their options.
recorded      The config that makes an artifact, from its history and those of its inputs.
recording     Commands that record themselves in what they make.
replay        Replay of a config: its steps, run one after the other in its folder.
run_commands  The command that replays a whole run: run.
steps         Steps: commands with their options, by the names that the command line has.
"""
