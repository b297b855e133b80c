"""The ground under every stage: settings, artifacts, seeds, engines, devices, costs.

artifacts   Artifacts: directories filled, sealed by a manifest, named, sent and read with checks.
devices     Device, precision, float32 products and processes that work runs on.
engine      Engines: hand tasks to workers, lost ones again; this machine's processes.
hub         Models from outside: fetched from the Hub; foreign code refused.
metering    Time and memory of work, its progress, the machine, costs of an index.
packing     Length-sorted packing of token sequences without padding.
publishing  Publish files and folders: whole under their names, or as they were before.
ray_engine  Workers on a Ray cluster, safe against lost nodes.
remote/     Places that are URLs: data streamed from them, folders fetched and published.
seeding     Independent random streams from a root seed and a name.
settings    Frozen settings, checked and read from YAML.
stage       Long stages: found finished, or claimed, resumed and published when whole.
tracking    Numbers of a run, logged live to trackio, Weights & Biases or MLflow.
"""
