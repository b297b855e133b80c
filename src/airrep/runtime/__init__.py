"""The ground under every stage: settings, artifacts, seeds, engines, devices, costs.

artifacts   Artifacts: directories written atomically, manifest last.
costs       Costs of real runs, read from files beside their artifacts.
devices     Device, precision and processes that work runs on.
engine      Engines that run independent tasks, with retries and replaced workers.
hub         Models from outside: fetched from the Hub; foreign code refused.
metering    Time and memory of pieces of work, and the machine they ran on.
packing     Length-sorted packing of token sequences without padding.
processes   An engine of local processes, one thread each.
ray_engine  An engine on a Ray cluster that survives lost nodes.
seeding     Independent random streams from a root seed and a name.
settings    Frozen settings, checked and read from YAML.
stage       Long stages: found finished, or claimed, resumed and published when whole.
"""
