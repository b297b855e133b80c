"""The text path, which needs no language model, beside an earlier commit and beside plain libraries.

Run as ``python benchmarks/text_path.py``. ``--large 1000000`` builds a large index as well, ``--size`` and ``--demo``
make fresh environments, which needs a package registry, and ``--lds`` judges the yardsticks.

Times are process CPU time on one thread, child processes included, each command in a process of its own: all candidates
in turns, and ratios within a turn. The earlier commit is taken from this repository into a temporary folder and runs on
the same interpreter, so that one must have what the earlier commit needs too. Nothing is resumed, and nothing is left.

Texts are the 2,000 that come with airrep, over and over. In each, a tenth of the words are replaced by words drawn from
all of them, by frequency and from a fixed seed: no two texts are the same, and their lengths are those of real ones.
A large file therefore has fewer different words and more near copies than one of only real texts would have.

Yardsticks on the same texts: bm25s, a plain library for BM25 (tokenise, index and save, as it comes), and an index of
the static encoder alone, one vector for each word piece and their mean. That stands for model2vec, whose models cannot
be had without a network.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cpu import verdict

HERE = Path(__file__).parent.resolve()
ROOT = HERE.parent
DATA = Path("src") / "airrep" / "data" / "train.jsonl"
STATIC = ROOT / "src" / "airrep" / "models" / "static"
CHANGED = 0.1
"""Share of the words of a text that are replaced."""
ASKED = ("--prompt", "Can I eat zucchini raw?", "--response", "No, zucchini should be cooked before eating.")
ROLES = ("tasks", "mixture", "general", "safety")
SETS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
"""Instruction sets that products of matrices use."""
BM25S = "from pathlib import Path; import sys, text_path; text_path.bm25s_index(*map(Path, sys.argv[1:]))"
QUERIES = "from pathlib import Path; import sys, text_path; text_path.queries(*map(Path, sys.argv[1:]))"


class Spent(NamedTuple):
    """Cost of a command, its child processes included."""

    cpu: float
    """Seconds of CPU, user's and system's."""
    clock: float
    memory: float
    """GB at most, each page that processes share counted once; 0 if nobody looked."""
    printed: str


def spend(command: Sequence[str], tree: Path = ROOT, *, watch: bool = False, where: Path | None = None) -> Spent:
    """Run a command with the sources of a tree, on one thread; end with its output if it fails."""
    paths = os.pathsep.join([str(tree / "src"), os.environ["PYTHONPATH"]])
    known = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    known.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled once, not at each question
    known.pop("MAKEFLAGS", None)  # of a `make` that runs this, not of one that this runs
    begun, most = time.perf_counter(), 0.0
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen(command, cwd=where, env=known, stdout=out, stderr=subprocess.STDOUT)
        ended, status, used = os.wait4(child.pid, os.WNOHANG)
        while not ended:
            looked = time.perf_counter()
            most = max(most, held(child.pid)) if watch else 0
            # A look walks all pages of a process: of a large one, as often as ever it would take a tenth of a core.
            time.sleep(max(0.2, 30 * (time.perf_counter() - looked)) if watch else 0.01)
            ended, status, used = os.wait4(child.pid, os.WNOHANG)
        clock = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        printed = out.read()
    if child.returncode:
        sys.exit(f"{' '.join(command)}: ended with {child.returncode}\n{printed}")
    return Spent(used.ru_utime + used.ru_stime, clock, most, printed)


def held(process: int) -> float:
    """GB of a process and those that it started, shared pages in shares (Linux)."""
    try:
        told = Path(f"/proc/{process}/smaps_rollup").read_text()
        below = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it has ended
        return 0.0
    own = int(told.split("\nPss:")[1].split()[0]) * 1024 / 1e9
    return own + sum(held(int(child)) for child in below)


def airrep(*arguments: object) -> list[str]:
    """A command of airrep."""
    return [sys.executable, "-m", "airrep", *map(str, arguments)]


def changed(count: int, seed: int = 0) -> Iterator[dict[str, str]]:
    """Texts made from real ones, each with words replaced."""
    drawn = random.Random(seed)
    records = [json.loads(line) for line in (ROOT / DATA).read_text(encoding="utf-8").splitlines()]
    drawn.shuffle(records)  # they stand by source, and sources differ in length
    parts = [[re.split(r"(\s+)", record[name]) for name in ("prompt", "response")] for record in records]
    words = [word for both in parts for pieces in both for word in pieces[::2] if word]
    for number in range(count):
        prompt, response = (_replaced(pieces, words, drawn) for pieces in parts[number % len(parts)])
        source = records[number % len(parts)]["source"]
        yield {"id": str(number), "prompt": prompt, "response": response, "source": source}


def _replaced(pieces: list[str], words: list[str], drawn: random.Random) -> str:
    """A text, cut into words and what stands between, with some words replaced."""
    pieces, count = list(pieces), (len(pieces) + 1) // 2
    for place in drawn.sample(range(count), max(1, round(CHANGED * count))):
        pieces[2 * place] = drawn.choice(words)
    return "".join(pieces)


def write(path: Path, records: Iterator[dict[str, str]]) -> Path:
    """Write JSON lines, one by one: this process stays small."""
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return path


def bm25s_index(texts: Path, out: Path) -> None:
    """Index a file with bm25s as it comes: this runs in a process of its own."""
    import bm25s

    records = (json.loads(line) for line in texts.open(encoding="utf-8"))
    tokens = bm25s.tokenize([_text(record) for record in records], show_progress=False)
    retriever = bm25s.BM25()
    retriever.index(tokens, show_progress=False)
    retriever.save(out)


def _text(record: dict[str, str]) -> str:
    return f"{record['prompt']} {record['response']}"


def queries(index: Path) -> None:
    """Ask an index one query after another in a running process; print CPU and clock of each as JSON."""
    import airrep

    opened, asked = airrep.Index(index), airrep.read_corpus(ROOT / "src" / "airrep" / "data" / "queries.jsonl")
    found = []
    for query in asked[:8]:
        begun, clock = time.process_time(), time.perf_counter()
        opened.top(query, k=10)
        found.append((time.process_time() - begun, time.perf_counter() - clock))
    print(json.dumps(found))


def hide(folder: Path) -> None:
    """Let processes find no pandas, which an installation without extras lacks, and which others load where it is."""
    folder.mkdir()
    (folder / "pandas.py").write_text("raise ImportError\n")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def earlier(commit: str, folder: Path) -> Path:
    """The files of a commit of this repository, in a new folder."""
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "--extract", "--directory", str(folder)], input=packed, check=True)
    return folder


def row(what: str, before: str, now: str, ratio: str) -> None:
    """Print a line of the table."""
    print(f"| {what} | {before} | {now} | {ratio} |", flush=True)


def compare(what: str, before: list[float], now: list[float], ask: float) -> None:
    """Print CPU times of both commits, and the median and range of their ratios."""
    ratios = [one / other for one, other in zip(before, now, strict=True)]
    middle = [f"{statistics.median(seconds):.3g} s" for seconds in (before, now)]
    told = f"{verdict(statistics.median(ratios), ask)}; {min(ratios):.2f} to {max(ratios):.2f}"
    row(what, *middle, told)


def in_turns(candidates: dict[str, Callable[[], Spent]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each candidate in each round."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            found[name].append(run().cpu)
    return found


def cold_questions(trees: dict[str, Path], folder: Path, rounds: int) -> None:
    """Print a cold question to an index of the demo's data, each commit's own."""
    for name, tree in trees.items():  # which also writes the compiled modules of both
        spend(airrep("index", tree / DATA, "--out", folder / f"demo-{name}"), tree)
    asked = {name: airrep("top", folder / f"demo-{name}", *ASKED) for name in trees}
    found = in_turns({name: lambda n=name: spend(asked[n], trees[n]) for name in trees}, rounds)  # type: ignore[misc]
    compare("`airrep top`, cold, the demo's index", found["before"], found["now"], 5)


def indexing(trees: dict[str, Path], texts: Path, count: int, rounds: int) -> None:
    """Print what an index costs, beside the earlier commit and the yardsticks."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"

        def index(name: str, *how: object) -> Spent:
            return spend(airrep("index", texts, "--out", out, "--replace", *how), trees[name])

        candidates: dict[str, Callable[[], Spent]] = {name: lambda n=name: index(n) for name in trees}  # type: ignore[misc]
        candidates["bm25s"] = lambda: spend([sys.executable, "-c", BM25S, str(texts), f"{out}-bm25s"], where=HERE)
        if STATIC.is_dir():
            candidates["static"] = lambda: index("now", "--method", "airrep", "--encoder", "static")
        found = in_turns(candidates, rounds)
    now = found["now"]
    compare(f"`airrep index`, {count:,} texts", found["before"], now, 12)
    for name, title in (("bm25s", "bm25s"), ("static", "the static encoder alone")):
        if name in found:
            times = [one / other for one, other in zip(now, found[name], strict=True)]
            ratio = f"airrep takes {statistics.median(times):.2f} × ({min(times):.2f} to {max(times):.2f})"
            row(f"the same texts, {title}", "–", f"{statistics.median(found[name]):.3g} s", ratio)


def large(folder: Path, count: int) -> None:
    """Print what a large index costs by one process and by two, and a query of it in a running process."""
    texts = write(folder / "large.jsonl", changed(count))
    built = spend(airrep("index", texts, "--out", folder / "large"), watch=True)
    two = spend(airrep("index", texts, "--out", folder / "two", "--workers", 2))
    each = f"{1e3 * built.cpu / count:.2f} ms an example (ask <= 2.5), {built.clock:.0f} s by the clock"
    row(f"`airrep index`, {count:,} texts", "–", each, f"memory {built.memory:.2f} GB (ask <= 1.5)")
    clocks = f"{built.clock / two.clock:.2f} times as fast by the clock"
    row("the same by two processes", "–", f"{two.cpu:.0f} s", f"{two.cpu / built.cpu:.2f} × the CPU of one, {clocks}")
    asked = spend([sys.executable, "-c", QUERIES, str(folder / "large")], watch=True, where=HERE)
    (first, _), *others = json.loads(asked.printed.splitlines()[-1])
    cpu, clock = (statistics.median(one) for one in zip(*others, strict=True))
    told = f"{cpu:.2f} s, {clock:.2f} by the clock (ask <= 0.2)"
    row("one query of it in a running process", "–", told, f"the first {first:.2f} s; memory {asked.memory:.2f} GB")


def size(trees: dict[str, Path], folder: Path) -> None:
    """Print the size of fresh environments, pip included."""
    found = {name: _installed(tree, folder / f"environment-{name}") for name, tree in trees.items()}
    asked = f"{found['before'] / found['now']:.1f} × less (ask <= 350 MB)"
    row("`pip install .`, the environment", *(f"{found[name]:.0f} MB" for name in trees), asked)


def _installed(tree: Path, environment: Path) -> float:
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        copy = earlier("HEAD", Path(folder) / "copy") if tree == ROOT else tree
        subprocess.run([*pip, "--constraint", str(copy / "constraints.txt"), str(copy)], check=True)
    told = subprocess.run(["du", "-sm", str(environment)], capture_output=True, text=True, check=True).stdout
    return float(told.split()[0])


def demo(trees: dict[str, Path], commit: str, folder: Path) -> None:
    """Print how long `make demo` takes in clean clones, by the clock."""
    found = {}
    for name, which in zip(trees, (commit, "HEAD"), strict=True):
        clone = folder / f"clone-{name}"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        subprocess.run(["git", "checkout", "--quiet", "--detach", _hash(which)], cwd=clone, check=True)
        found[name] = spend(["make", "--silent", "demo"], clone, where=clone).clock
    row("`make demo`, clean clone", *(f"{one:.0f} s" for one in found.values()), "by the clock (ask <= 45 s)")


def judged(folder: Path) -> None:
    """Print the LDS of the default and of both yardsticks, in each role whose data are at hand."""
    print("\n| LDS × 100 | the default | bm25s | the static encoder alone |\n|---|---|---|---|")
    for role in ROLES:
        data = ROOT / "experiments" / "work" / "data" / role / "judge.jsonl"
        if data.exists():
            found = _lds(ROOT / "experiments" / "roles" / "labels" / f"{role}-judge", data, folder / role)
            print(f"| {role} | {' | '.join('–' if one is None else f'{100 * one:.1f}' for one in found)} |", flush=True)
        else:
            print(f"| {role} | its data are not here: experiments/README.md says how they are made | | |")


def _lds(labels: Path, data: Path, folder: Path) -> tuple[float | None, ...]:
    """LDS of the default, of sums of bm25s's scores and of the static encoder, mean of the instances."""
    import airrep

    instances, corpus = airrep.open(labels).instances(data), airrep.read_corpus(data)
    made = {"default": airrep.build_index(corpus, folder / "default")}
    if STATIC.is_dir():
        made["static"] = airrep.build_index(corpus, folder / "static", "airrep", settings={"encoder": "static"})
    rows = airrep.evaluate_lds(list(made.items()), instances, resamples=50).rows
    found = {one.name: one.value for one in rows}
    plain = statistics.mean(airrep.metrics.lds(_bm25s_sums(one), one.losses, resamples=0).value for one in instances)
    return found["default"], plain, found.get("static")


def _bm25s_sums(instance: Any) -> Any:
    """Scores of the members of each subset by bm25s, summed up, as queries by subsets."""
    import bm25s
    import numpy as np

    texts, asked = ([f"{x.prompt} {x.response}" for x in part] for part in (instance.train, instance.queries))
    retriever = bm25s.BM25()
    retriever.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    split = bm25s.tokenize(asked, return_ids=False, show_progress=False)
    scores = np.stack([retriever.get_scores(tokens) for tokens in split])
    return np.add.reduceat(scores[:, instance.subsets.rows], instance.subsets.offsets[:-1], axis=1)


def _hash(commit: str) -> str:
    told = subprocess.run(
        ["git", "rev-parse", "--verify", "--short=8", f"{commit}^{{commit}}"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
    )
    return told.stdout.strip() or sys.exit(f"{commit}: is no commit here; expected one. A full clone has them all.")


def heading(commit: str, texts: Path) -> None:
    """Print what was run where, and the head of the table."""
    from tokenizers import Tokenizer

    told = [line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line]
    known = {name.strip(): value.strip() for name, value in reversed(told)}
    has = [one for one in SETS if one in known.get("flags", "").split()]
    counting = Tokenizer.from_file(str(ROOT / "src" / "airrep" / "models" / "tiny-lm" / "tokenizer.json"))
    lines = [json.loads(line) for line in texts.open(encoding="utf-8")]
    mean = statistics.mean(len(counting.encode(_text(one)).ids) for one in lines[:2000])
    clean = not subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, check=True).stdout
    print(f"{known.get('model name', 'unknown processor')}, {os.cpu_count()} cores, with {', '.join(has)}.")
    print(f"Texts have {mean:.0f} tokens in the mean, of the language model that comes with airrep.")
    print(f"Python {sys.version.split()[0]}, one thread.\n")
    print(f"| CPU time | before: {commit} | now: {_hash('HEAD')}{'' if clean else ' with changes'} | before / now |")
    print("|---|---|---|---|", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", default="5f14e5cd", help="commit to compare with")
    parser.add_argument("--large", type=int, default=0, metavar="N", help="also build an index of N texts, and ask it")
    parser.add_argument("--size", action="store_true", help="also install both commits")
    parser.add_argument("--demo", action="store_true", help="also run `make demo` in clean clones")
    parser.add_argument("--lds", action="store_true", help="also judge the yardsticks")
    given = parser.parse_args()
    commit = _hash(given.before)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hide(folder / "hidden")
        texts = write(folder / "texts.jsonl", changed(given.texts))
        trees = {"before": earlier(commit, folder / "before"), "now": ROOT}
        heading(commit, texts)
        cold_questions(trees, folder, 5 * given.rounds)
        indexing(trees, texts, given.texts, given.rounds)
        if given.large:
            large(folder, given.large)
        if given.size:
            size(trees, folder)
        if given.demo:
            demo(trees, commit, folder)
        if given.lds:
            judged(folder)


if __name__ == "__main__":
    main()
