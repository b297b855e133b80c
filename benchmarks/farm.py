"""The label farm: its overhead outside the fine-tunes, and two local workers against one.

Run as ``python benchmarks/farm.py``. The LM is a Llama of random weights, 256 wide, 4 layers, on the demo's examples;
``--lm`` takes another. Overhead is process CPU time of the whole command less that of fine-tunes and evaluations, with
and without loading the LM. Two workers are compared with one by fine-tunes per second of wall-clock time after every
worker has finished its first, for which two cores must be free; the same by process CPU time says what other load on
the machine hides: two workers are worth ``2 · (CPU seconds of a fine-tune, one worker) / (the same, two workers)``.
"""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from cpu import verdict
from finetune import write_lm
from transformers.utils import logging

import airrep
from airrep.corpus.corpus import Corpus
from airrep.labels.farm import label
from airrep.labels.plan import SamplingSettings, SubsetPlan
from airrep.labels.sampling import sample
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.engine import LocalProcesses

DEMO = Path(airrep.__file__).parent / "data"
OVERHEAD = 0.03
SPEEDUP = 1.8
FINE_TUNE = FineTuneSettings(learning_rate=5e-4)


class TimedLm:
    """A target LM that notes the CPU seconds of what a fine-tune needs."""

    def __init__(self, settings: LmSettings, log: Path) -> None:
        from airrep.lm.model import load_lm

        begun = time.process_time()
        self._lm = load_lm(settings)
        self._log = log
        self.name, self.fingerprint = self._lm.name, self._lm.fingerprint
        self.reading, self.unusable, self.tokenise = self._lm.reading, self._lm.unusable, self._lm.tokenise
        self._note("load", begun)

    def _note(self, what: str, begun: float) -> None:
        with self._log.open("a") as stream:
            stream.write(f"{what} {time.process_time() - begun}\n")

    def reset(self) -> None:
        begun = time.process_time()
        self._lm.reset()
        self._note("reset", begun)

    def fine_tune(self, documents: Any, settings: FineTuneSettings, seed: int) -> None:
        begun = time.process_time()
        self._lm.fine_tune(documents, settings, seed)
        self._note("fine-tune", begun)

    def losses(self, documents: Any) -> np.ndarray:
        begun = time.process_time()
        found = self._lm.losses(documents)
        self._note("evaluation", begun)
        return found


@dataclass(frozen=True)
class LoadTimed:
    """Loads it in every worker."""

    settings: LmSettings
    log: Path

    def __call__(self) -> TimedLm:
        return TimedLm(self.settings, self.log)


def read_log(log: Path) -> dict[str, list[float]]:
    """CPU seconds by what they were spent on."""
    spent: dict[str, list[float]] = {}
    for line in log.read_text().splitlines():
        what, seconds = line.split()
        spent.setdefault(what, []).append(float(seconds))
    return spent


def main() -> None:
    """Print the overhead, then the speed of two workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", help="folder of a causal LM")
    parser.add_argument("--subsets", type=int, default=16)
    parser.add_argument("--size", type=int, default=32, help="examples in a subset")
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--precision", default="float32")
    arguments = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / "lm").mkdir()
        settings = LmSettings(
            lm=arguments.lm or write_lm(scratch / "lm"), precision=arguments.precision, device="cpu", max_tokens=256
        )
        train, queries = usable("train", settings), usable("queries", settings)
        plan = draw(scratch / "plan", train, queries, arguments.subsets, arguments.size, arguments.queries)
        print(f"{arguments.subsets} subsets of {arguments.size} of {len(train)} examples, {arguments.queries} queries")
        measure_overhead(scratch, plan, train, queries, settings)
        measure_workers(scratch, plan, train, queries, settings)


def usable(name: str, settings: LmSettings) -> Corpus:
    """The demo's examples whose responses fit."""
    from airrep.lm.model import load_lm

    corpus = airrep.read_corpus(DEMO / f"{name}.jsonl")
    unusable = load_lm(settings).unusable(list(corpus))
    return corpus.take([row for row in range(len(corpus)) if row not in unusable])


def draw(out: Path, train: Corpus, queries: Corpus, subsets: int, size: int, count: int) -> SubsetPlan:
    """One instance."""
    chosen = SamplingSettings(
        instances=1, train_count=None, query_count=min(count, len(queries)), subsets=subsets, size=size
    )
    return sample(train, out, chosen, queries)


def measure_overhead(scratch: Path, plan: SubsetPlan, train: Corpus, queries: Corpus, settings: LmSettings) -> None:
    """Print the CPU time outside the fine-tunes, in process."""
    log = scratch / "log-here"
    begun, wall = time.process_time(), time.perf_counter()
    label(plan, train, queries, LoadTimed(settings, log), FINE_TUNE, scratch / "here")
    total, wall = time.process_time() - begun, time.perf_counter() - wall
    spent = {what: sum(seconds) for what, seconds in read_log(log).items()}
    inside = sum(seconds for what, seconds in spent.items() if what != "load")
    outside = total - inside - spent["load"]
    print(f"in process: {total:.1f} s of CPU ({wall:.1f} s of wall clock): ", end="")
    print(", ".join(f"{what} {seconds:.2f}" for what, seconds in spent.items()))
    print(f"overhead outside the fine-tunes: {outside / inside:.2%} {within(outside / inside)}", end="")
    print(f"; with loading the LM once: {(total - inside) / inside:.2%}")


def within(share: float) -> str:
    """A measured share beside the greatest one asked for."""
    return f"(ask < {OVERHEAD:.0%}: {'met' if share < OVERHEAD else 'MISSED'})"


def measure_workers(scratch: Path, plan: SubsetPlan, train: Corpus, queries: Corpus, settings: LmSettings) -> None:
    """Print how much faster two workers are than one."""
    rates, tasks = {}, {}
    for workers in (1, 2):
        log, ends = scratch / f"log-{workers}", [time.perf_counter()]
        label(
            plan,
            train,
            queries,
            LoadTimed(settings, log),
            FINE_TUNE,
            scratch / f"workers-{workers}",
            engine=LocalProcesses(workers),
            on_task=lambda _, ends=ends: ends.append(time.perf_counter()),
        )
        rates[workers] = steady_rate(ends[1:], workers)
        tasks[workers] = float(np.median(read_log(log)["fine-tune"]))
        whole = ends[-1] - ends[0]
        print(f"{workers} worker(s): {rates[workers]:.3f} fine-tunes/s steady, {whole:.1f} s in all; ", end="")
        print(f"median {tasks[workers]:.2f} s of CPU a fine-tune")
    load = os.getloadavg()[0]
    print(f"two workers over one, wall clock: {verdict(rates[2] / rates[1], SPEEDUP)}; load average {load:.1f}")
    print(f"two workers over one, by CPU time: {verdict(2 * tasks[1] / tasks[2], SPEEDUP)}")


def steady_rate(ends: Sequence[float], workers: int) -> float:
    """Tasks a second, without the start: from the end of the first task that came after the evaluation of the base.

    The last task of each worker may leave another one idle, so the tail is left out as well.
    """
    first, last = workers, len(ends) - workers
    return (last - first) / (ends[last] - ends[first])


if __name__ == "__main__":
    main()
