"""What every stage runs on: settings, artifacts, seeds, engines, devices, costs.

artifacts   Directories written atomically, manifest last.
costs       What real runs cost, read from beside their artifacts.
devices     Device, precision and processes that work runs on.
engine      Where independent tasks run: this process, local processes, Ray.
hub         Models from outside: fetched from the Hub; foreign code refused.
metering    Measure pieces of work, on a machine named in neutral words.
packing     Length-sorted packing of token sequences without padding.
processes   Tasks in processes of this machine, one thread each.
ray_engine  Tasks on a Ray cluster, safe against lost nodes.
seeding     Independent random streams from a root seed and a name.
settings    Frozen settings of each stage, read from YAML.
stage       Long stages: found finished, else claimed, resumed, and named when whole.
"""
