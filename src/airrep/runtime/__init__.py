"""Shared by all stages: settings, artifacts, seeds, engines, devices, costs.

artifacts   Artifacts: directories sealed by a manifest; writing, publishing and checked reading.
devices     Device, precision, fast float32 products and torchrun's processes.
engine      Engines that give tasks to workers and repeat lost tasks; processes on this machine.
hub         Downloads models from the Hub and refuses their program code unless trusted.
metering    Measures time and memory, shows progress, describes the machine, records costs of an index.
packing     Length-sorted packing of token sequences without padding.
publishing  Writes files and folders atomically: complete under their names, or unchanged.
ray_engine  Runs tasks on a Ray cluster and repeats the tasks of lost nodes.
remote/     Data and folders at URLs: streaming, fetching, publishing.
seeding     Independent random streams from a root seed and a name.
settings    Immutable, checked settings, read from YAML and ``key=value``.
stage       Long stages: find a finished artifact, or make it, resuming interrupted work.
tracking    Logs numbers of a run live to trackio, Weights & Biases or MLflow.
"""
