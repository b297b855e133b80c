"""The ground under every stage: settings, artifacts, seeds, engines, devices, costs.

artifacts   Directories written atomically, manifest last.
costs       Recorded costs of real runs, read from beside their artifacts.
devices     Device, precision and processes that work runs on.
engine      Engines that run independent tasks: the base class, the dispatch, this process.
hub         Models from outside: fetched from the Hub; foreign code refused.
metering    Measure the cost of work, and describe the machine in neutral words.
packing     Length-sorted packing of token sequences without padding.
processes   Tasks in processes of this machine, one thread each.
ray_engine  Tasks on a Ray cluster, safe against lost nodes.
seeding     Independent random streams from a root seed and a name.
settings    Frozen settings of each stage, read from YAML.
stage       A long stage: find the finished artifact, else claim, resume and name it.
"""
