"""The pieces of the GPU kit. ``run.py`` calls each in a process of its own: python pieces.py NAME RESULT KIT."""

import gc
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROLES = ("tasks", "general", "mixture", "safety")
PRECISIONS = ("float32", "bfloat16")
SHEETS = {  # dense FLOP/s in float32 (no tensor cores) and bfloat16, and bytes/s of memory, by data sheets
    "H200": (67e12, 989e12, 4.8e12),
    "H100 PCIe": (51e12, 756e12, 2.0e12),
    "H100": (67e12, 989e12, 3.35e12),
    "A100": (19.5e12, 312e12, 2.04e12),
    "L40S": (91.6e12, 362e12, 0.864e12),
    "A10": (31.2e12, 125e12, 0.6e12),
}
Row = dict[str, Any]


class LeftOutError(Exception):
    """The piece needs something that is not here."""


@dataclass(frozen=True)
class Kit:
    """Where and how pieces run."""

    out: Path
    device: str = "cuda"
    tiny: bool = False
    lm: Path | None = None
    data: Path | None = None

    @property
    def results(self) -> Path:
        """Folder of results."""
        return self.out / "results"

    @cached_property
    def work(self) -> Path:
        """Folder of what can be thrown away."""
        (self.out / "work").mkdir(parents=True, exist_ok=True)
        return self.out / "work"

    def to_dict(self) -> dict[str, Any]:
        """JSON values, from which :meth:`of` makes it again."""
        values = asdict(self)
        return {name: str(value.resolve()) if isinstance(value, Path) else value for name, value in values.items()}

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Kit":
        """From JSON values."""
        paths = {name: values[name] and Path(values[name]) for name in ("out", "lm", "data")}
        return cls(device=values["device"], tiny=values["tiny"], **paths)

    def sized(self, whole: int, tiny: int) -> int:
        """A size, or the one of a dry run."""
        return tiny if self.tiny else whole

    @property
    def cuda(self) -> bool:
        """Tell whether the device is a CUDA card."""
        return self.device.startswith("cuda")


def names() -> list[str]:
    """All pieces, in order: what fails early first, the long ones last."""
    farm = [f"farm-{role}" for role in ROLES]
    bench = [f"bench-{stage}-{precision}" for stage in STAGES for precision in PRECISIONS]
    profiles = [f"profile-{precision}" for precision in PRECISIONS]
    return ["machine", *(f"smoke-{stage}" for stage in SMOKES), "limits", *bench, "bench-scoring", *profiles, *farm]


def run(name: str, kit: Kit) -> dict[str, Any]:
    """The result of one piece."""
    kind, _, rest = name.partition("-")
    try:
        if name in ("machine", "limits", "bench-scoring"):
            rows = {"machine": machine, "limits": limits, "bench-scoring": scoring}[name](kit)
        elif kind == "smoke":
            rows = list(SMOKES[rest](kit))
        elif kind == "farm":
            rows = farm(kit, rest)
        elif kind == "profile":
            rows = profile(kit, rest)
        else:
            stage, _, precision = rest.rpartition("-")
            rows = bench(kit, stage, precision)
    except LeftOutError as reason:
        return {"status": "left out", "reason": str(reason), "rows": []}
    from airrep.runtime.metering import describe_machine

    return {"status": "done", "machine": describe_machine(), "rows": rows}


# What the pieces work on.


def examples(count: int, name: str = "train") -> Any:
    """Examples of the demo's, which come with airrep."""
    import airrep

    corpus = airrep.read_corpus(Path(airrep.__file__).parent / "data" / f"{name}.jsonl")
    return corpus.take(range(min(count, len(corpus))))


def small_lm() -> str:
    """The LM that comes with airrep."""
    import airrep

    return str(Path(airrep.__file__).parent / "models" / "tiny-lm")


def lm_of_that_shape(kit: Kit) -> str:
    """The LM asked for, or one of random weights in the shape of SmolLM2-135M."""
    if kit.lm is not None:
        return str(kit.lm)
    if kit.tiny:
        return small_lm()
    folder = kit.work / "lm"
    if not (folder / "config.json").is_file():
        import torch
        from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

        tokenizer = AutoTokenizer.from_pretrained(small_lm())
        torch.manual_seed(0)
        shape = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
        config = LlamaConfig(
            vocab_size=49152, num_key_value_heads=3, max_position_embeddings=2048, tie_word_embeddings=True, **shape
        )
        tokenizer.save_pretrained(folder)
        LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


def documents_of(kit: Kit, lm: Any, count: int) -> Any:
    """Random tokens of log-normal lengths: the same work for every LM."""
    import numpy as np

    from airrep.lm.documents import Documents

    drawn = np.random.default_rng(0)
    most = min(lm.max_tokens, kit.sized(512, 48))
    lengths = np.clip(drawn.lognormal(5.0, 0.7, count), 8, most).astype(int)
    return Documents.of((drawn.integers(3, 250, n).tolist(), int(n) * 2 // 3) for n in lengths)


# Smoke tests: on the card as on the CPU.


def _near(what: str, found: Any, wanted: Any, limit: float) -> Row:
    """A row that tells how far results of the card are from those of the CPU; fails beyond the limit."""
    import numpy as np

    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    off = float(np.linalg.norm(found - wanted) / max(float(np.linalg.norm(wanted)), 1e-30))
    if not off <= limit:  # NaN too
        raise AssertionError(f"{what}: is {off:.2e} of its length from the CPU's; expected at most {limit:g}")
    return {"what": what, "distance": off, "limit": limit}


def _settings(kit: Kit, precision: str = "float32") -> tuple[Row, Row]:
    return {"device": "cpu", "precision": "float32"}, {"device": kit.device, "precision": precision}


LIMITS = {"float32": 2e-3, "bfloat16": 0.1}


def smoke_encode(kit: Kit) -> Iterator[Row]:
    """The shipped encoder."""
    from airrep.encoder.load import load_encoder

    some = list(examples(kit.sized(200, 6)))
    wanted = load_encoder("default", precision="float32", device="cpu").encode(some)
    for precision in PRECISIONS:
        found = load_encoder("default", precision=precision, device=kit.device).encode(some)  # type: ignore[arg-type]
        yield _near(f"features, {precision}", found, wanted, LIMITS[precision])


def smoke_lm(kit: Kit) -> Iterator[Row]:
    """Losses, a fine-tune, hidden states, answers, reset."""
    from airrep.lm.model import load_lm
    from airrep.lm.settings import FineTuneSettings, LmSettings

    for precision in PRECISIONS:
        here, there = (load_lm(LmSettings.of({"lm": small_lm(), **at})) for at in _settings(kit, precision))
        documents = here.tokenise(list(examples(kit.sized(64, 8))))
        before = there.losses(documents)
        yield _near(f"losses, {precision}", before, here.losses(documents), LIMITS[precision] / 5)
        for one in (here, there):
            one.fine_tune(documents, FineTuneSettings(learning_rate=5e-4, epochs=1, batch_examples=8), seed=0)
        yield _near(f"losses after, {precision}", there.losses(documents), here.losses(documents), LIMITS[precision])
        states = [one.hidden_states(documents, 1) for one in (there, here)]
        yield _near(f"hidden states, {precision}", *states, LIMITS[precision])
        there.generate(list(examples(3, "queries")), 8)
        there.reset()
        yield _near(f"losses after reset, {precision}", there.losses(documents), before, 1e-5)


def smoke_index(kit: Kit) -> Iterator[Row]:
    """An index of all channels, and questions to it."""
    import airrep

    train, queries = examples(kit.sized(300, 8)), examples(kit.sized(20, 2), "queries")
    found = []
    for at in _settings(kit):
        settings = {"lm": small_lm(), **at}
        folder = kit.work / f"index-{at['device']}"
        index = airrep.build_index(train, folder, settings=settings, replace=True)
        found.append(index.group_scores(queries, by="source").scores)
        index.top(queries, k=3)
    yield _near("group scores", found[1], found[0], 0.02)


def smoke_train(kit: Kit) -> Iterator[Row]:
    """Training of an encoder: all layers, two, and the head alone."""
    import numpy as np

    from airrep.labels.labels import LabelledInstance
    from airrep.scoring.groups import Groups
    from airrep.training.train import train_encoder

    def made(name: str, first: int) -> LabelledInstance:
        corpus = examples(1000)
        train = corpus.take(range(first, first + kit.sized(100, 12)))
        queries = corpus.take(range(500 + first, 500 + first + kit.sized(40, 6)))
        drawn = np.random.default_rng(first)
        subsets = {str(j): drawn.choice(len(train), 6, replace=False) for j in range(kit.sized(30, 6))}
        losses = 3 + drawn.standard_normal((len(queries), len(subsets))).astype(np.float32)
        return LabelledInstance(name, train, queries, Groups.from_lists(subsets), losses)

    sizes = {
        "queries_per_step": 16,
        "subsets_per_step": 10,
        "evaluate_every": 4,
        "initial_scale": 1.0,
        "max_tokens": 64,
        "head_dropout": 0.0,  # a card draws other numbers
    }
    for layers in ("all", 2, 0) if not kit.tiny else (0, 1):
        for precision in PRECISIONS if layers == 2 else ("float32",):
            logs: list[list[float]] = []
            for number, at in enumerate(_settings(kit, precision)):
                log: list[float] = []

                def note(record: Any, log: list[float] = log) -> None:
                    log.extend([record["loss"]] if record.get("loss") is not None else [])

                settings = {**sizes, "train_layers": layers, "steps": kit.sized(6, 2), **at}
                folder = kit.work / f"trained-{number}"
                train_encoder([made("a", 0)], [made("h", 200)], folder, settings, progress=note, replace=True)
                logs.append(log)
            yield _near(f"losses of steps, layers {layers}, {precision}", logs[1], logs[0], LIMITS[precision] * 5)


def _farm(kit: Kit, engine: Any, folder: str, at: Row) -> Any:
    from airrep.labels.farm import label
    from airrep.labels.plan import SamplingSettings
    from airrep.labels.sampling import sample
    from airrep.lm.settings import FineTuneSettings, LmSettings

    train, queries = examples(kit.sized(100, 12)), examples(kit.sized(20, 3), "queries")
    shape = {"instances": 1, "train_count": None, "query_count": len(queries)}
    chosen = SamplingSettings(**shape, subsets=kit.sized(6, 2), size=kit.sized(20, 4))
    plan = sample(train, kit.work / "plan", chosen, queries)
    lm = LmSettings.of({"lm": small_lm(), **at})
    tuning = FineTuneSettings(learning_rate=5e-4, epochs=1)
    shutil.rmtree(kit.work / folder, ignore_errors=True)
    return label(plan, train, queries, lm, tuning, kit.work / folder, engine=engine).losses(0)


def smoke_label(kit: Kit) -> Iterator[Row]:
    """Labels in this process, and by two workers that share the card."""
    from airrep.runtime.engine import LocalProcesses

    here, there = _settings(kit)
    wanted = _farm(kit, None, "labels-cpu", here)
    yield _near("labels, in process", _farm(kit, None, "labels-card", there), wanted, LIMITS["float32"])
    if not kit.tiny:
        yield _near(
            "labels, two workers", _farm(kit, LocalProcesses(2), "labels-two", there), wanted, LIMITS["float32"]
        )


def smoke_ray(kit: Kit) -> Iterator[Row]:
    """Labels and shards by Ray with one GPU."""
    if find_spec("ray") is None:
        raise LeftOutError("Ray is not installed")
    if kit.tiny:
        raise LeftOutError("a dry run starts no cluster")
    import airrep
    from airrep.runtime.ray_engine import RayEngine

    here, there = _settings(kit)
    engine = RayEngine(gpus=1.0 if kit.cuda else 0.0, cpus=1.0, workers=1)
    wanted = _farm(kit, None, "labels-cpu", here)
    yield _near("labels, Ray", _farm(kit, engine, "labels-ray", there), wanted, LIMITS["float32"])
    train, queries = examples(200), examples(10, "queries")
    found = [
        airrep.build_index(
            train, kit.work / f"ray-{at['device']}", "airrep", settings=at, replace=True, engine=chosen, shard_rows=64
        ).group_scores(queries, by="source")
        for at, chosen in ((here, None), (there, engine))
    ]
    yield _near("group scores, Ray", found[1].scores, found[0].scores, 0.02)


GRADIENTS: dict[str, Row] = {
    "tracin": {"rank": 4},
    "logra": {"rank": 4, "modules": ["all-linear"]},
    "trak": {"rank": 2},
    "dsdm": {"rank": 2},
    "rds": {},
}


def smoke_gradients(kit: Kit) -> Iterator[Row]:
    """Methods that keep projected gradients or hidden states."""
    for method, settings in GRADIENTS.items():
        own = settings if method == "rds" else {"store": "none", **settings}
        for precision in PRECISIONS if method in ("tracin", "rds") else ("float32",):
            found = [_scores(kit, method, {"lm": small_lm(), **own, **at}) for at in _settings(kit, precision)]
            yield _near(f"{method}, {precision}", found[1], found[0], LIMITS[precision] * 5)


def smoke_adapters(kit: Kit) -> Iterator[Row]:
    """A warm-up with adapters, and LESS."""
    if find_spec("peft") is None:
        raise LeftOutError("peft is not installed")
    from airrep.lm.settings import FineTuneSettings, LmSettings
    from airrep.lm.warmup import warm_up

    _, there = _settings(kit)
    tuning = FineTuneSettings(learning_rate=1e-3, batch_examples=8, epochs=1, lora_rank=4)
    train = examples(kit.sized(64, 8))
    warm = warm_up(train, kit.work / "warm", LmSettings.of({"lm": small_lm(), **there}), tuning, replace=True)
    own = {"lm": str(warm.path), "dimension": 256, "store": "none"}
    found = [_scores(kit, "less", {**own, **at}) for at in _settings(kit)]
    yield _near("less", found[1], found[0], LIMITS["float32"] * 10)


def smoke_ekfac(kit: Kit) -> Iterator[Row]:
    """EK-FAC: held whole, as factors, to unit length; and influence by conjugate gradients."""
    for name, own in {"whole": {"query_rank": None}, "factors": {"query_rank": 8}, "unit": {"unit": True}}.items():
        if kit.tiny and name != "factors":
            continue
        common = {"lm": small_lm(), "store": "none", "modules": ["*down_proj"], **own}
        found = [_scores(kit, "ekfac", {**common, **at}) for at in _settings(kit)]
        yield _near(f"ekfac {name}", found[1], found[0], 0.05)


def smoke_influence(kit: Kit) -> Iterator[Row]:
    """Influence functions by conjugate gradients, in float64."""
    common = {"lm": small_lm(), "store": "none", "solver": "cg", "damping": 100.0, "modules": ["*.0.mlp.down_proj"]}
    common |= {"tolerance": 0.5} if kit.tiny else {}
    found = [_scores(kit, "influence", {**common, **at}) for at in _settings(kit)]
    yield _near("influence", found[1], found[0], 0.02)


def _scores(kit: Kit, method: str, settings: Row) -> Any:
    from airrep.attributors.direct import DirectAttributor
    from airrep.attributors.methods import make_attributor

    made = make_attributor(method, settings)
    train, queries = examples(kit.sized(64, 6)), examples(kit.sized(8, 2), "queries")
    made.fit(train)
    if isinstance(made, DirectAttributor):
        return made.score(list(train), list(queries))
    return made.encode_train(list(train)) @ made.encode_queries(list(queries)).T


SMOKES: dict[str, Callable[[Kit], Iterator[Row]]] = {
    "encode": smoke_encode,
    "lm": smoke_lm,
    "index": smoke_index,
    "train": smoke_train,
    "label": smoke_label,
    "gradients": smoke_gradients,
    "adapters": smoke_adapters,
    "ekfac": smoke_ekfac,
    "influence": smoke_influence,
    "ray": smoke_ray,
}


# Benchmarks: seconds, peak memory, and the share of what the card can do.


def machine(kit: Kit) -> list[Row]:
    """Versions, and the card."""
    import platform

    import torch
    from transformers import __version__ as transformers

    rows: list[Row] = [{"what": "python", "value": platform.python_version()}]
    rows += [{"what": "torch", "value": torch.__version__}, {"what": "transformers", "value": transformers}]
    if kit.cuda:
        found = torch.cuda.get_device_properties(0)
        rows += [
            {"what": "card", "value": found.name},
            {"what": "memory, GiB", "value": f"{found.total_memory / 2**30:.1f}"},
            {"what": "multiprocessors", "value": found.multi_processor_count},
            {"what": "CUDA", "value": torch.version.cuda},
        ]
    return rows


def _wait(kit: Kit) -> None:
    if kit.cuda:
        import torch

        torch.cuda.synchronize()


def timed(kit: Kit, work: Callable[[], object], rounds: int = 3) -> float:
    """Least wall-clock seconds of a few rounds, after one that is not counted."""
    found = []
    for number in range(rounds + 1 if not kit.tiny else 1):
        _wait(kit)
        begun = time.perf_counter()
        work()
        _wait(kit)
        if number or kit.tiny:
            found.append(time.perf_counter() - begun)
    return min(found)


def limits(kit: Kit) -> list[Row]:
    """Return what the card reaches here: products of large matrices, and a copy; beside its data sheet."""
    import torch

    rows, size = [], kit.sized(8192, 128)
    for number, precision in enumerate(PRECISIONS):
        kind = getattr(torch, precision)
        one, other = (torch.randn(size, size, device=kit.device).to(kind) for _ in range(2))
        seconds = timed(kit, lambda a=one, b=other: a @ b, 5)  # type: ignore[misc]
        sheet = _sheet(kit)
        row = {"what": f"product, {precision}", "reached": 2 * size**3 / seconds, "unit": "FLOP/s"}
        rows.append(row | {"data sheet": sheet[number] if sheet else None})
    held = torch.empty(kit.sized(2**31, 2**16), dtype=torch.uint8, device=kit.device)
    room = torch.empty_like(held)
    seconds = timed(kit, lambda: room.copy_(held), 5)
    row = {"what": "copy", "reached": 2 * held.numel() / seconds, "unit": "bytes/s"}
    return [*rows, row | {"data sheet": sheet[2] if sheet else None}]


def _sheet(kit: Kit) -> tuple[float, float, float] | None:
    if not kit.cuda:
        return None
    import torch

    name = torch.cuda.get_device_name(0)
    return next((values for key, values in SHEETS.items() if all(part in name for part in key.split())), None)


def _reached(kit: Kit, what: str) -> float | None:
    """Return what the piece `limits` measured; None before it ran."""
    path = kit.results / "limits.json"
    rows = json.loads(path.read_text("utf-8"))["rows"] if path.is_file() else []
    return next((row["reached"] for row in rows if row["what"] == what), None)


def measured(
    kit: Kit, what: str, precision: str, work: Callable[[], object], count: int, unit: str, moved: float | None = None
) -> Row:
    """A row of a benchmark: *count* units of work in the least seconds, FLOPs as torch counts them, peak memory.

    *moved* are bytes that must pass through the card's memory, where they are known.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        work()
    flops = counter.get_total_flops()
    gc.collect()
    if kit.cuda:
        torch.cuda.reset_peak_memory_stats()
    seconds = timed(kit, work)
    sheet, reached = _sheet(kit), _reached(kit, f"product, {precision}")
    row: Row = {"what": what, "precision": precision, "seconds": seconds, f"{unit}/s": count / seconds}
    if flops:
        row |= {"FLOP/s": flops / seconds, "of the card's product": reached and flops / seconds / reached}
        row["of the data sheet"] = sheet and flops / seconds / sheet[PRECISIONS.index(precision)]
    if moved:
        copied = _reached(kit, "copy")
        row |= {"bytes/s": moved / seconds, "of the card's copy": copied and moved / seconds / copied}
    row["peak MiB"] = torch.cuda.max_memory_allocated() / 2**20 if kit.cuda else None
    return row


def bench(kit: Kit, stage: str, precision: str) -> list[Row]:
    """One stage in one precision."""
    return STAGES[stage](kit, precision)


def bench_encode(kit: Kit, precision: str) -> list[Row]:
    """The shipped encoder on real texts."""
    from airrep.encoder.load import load_encoder

    encoder = load_encoder("default", precision=precision, device=kit.device)  # type: ignore[arg-type]
    texts = [encoder.render(one) for one in examples(kit.sized(2000, 6))] * kit.sized(8, 1)
    return [measured(kit, "encode", precision, lambda: encoder.encode_texts(texts), len(texts), "texts")]


def _lm(kit: Kit, precision: str, **more: Any) -> Any:
    from airrep.lm.model import load_lm
    from airrep.lm.settings import LmSettings

    return load_lm(LmSettings.of({"lm": lm_of_that_shape(kit), "device": kit.device, "precision": precision, **more}))


def bench_lm(kit: Kit, precision: str) -> list[Row]:
    """Fine-tune, losses and reset of the target LM; the optimizer's step by itself."""
    import torch

    from airrep.lm.settings import FineTuneSettings

    lm = _lm(kit, precision)
    documents = documents_of(kit, lm, kit.sized(512, 6))
    tokens, tuning = int(documents.lengths.sum()), FineTuneSettings(epochs=1)
    rows = [
        measured(kit, "losses", precision, lambda: lm.losses(documents), tokens, "tokens"),
        measured(kit, "fine-tune", precision, lambda: lm.fine_tune(documents, tuning, 0), tokens, "tokens"),
    ]
    weights = list(lm.model.parameters())
    size = sum(parameter.numel() for parameter in weights)
    rows.append(measured(kit, "reset", precision, lm.reset, size, "weights"))
    for parameter in weights:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.AdamW(weights, lr=1e-9, fused=True)
    # weights, gradients and both moments are read, all but the gradients written
    rows.append(measured(kit, "optimizer", precision, optimizer.step, size, "weights", 7 * 4 * size))
    return rows


def bench_checkpointing(kit: Kit, precision: str) -> list[Row]:
    """A fine-tune that recomputes activations."""
    from airrep.lm.settings import FineTuneSettings

    lm = _lm(kit, precision, checkpointing=True)
    documents = documents_of(kit, lm, kit.sized(256, 6))
    tokens, tuning = int(documents.lengths.sum()), FineTuneSettings(epochs=1)
    what = "fine-tune, checkpointing"
    return [measured(kit, what, precision, lambda: lm.fine_tune(documents, tuning, 0), tokens, "tokens")]


def _projected(kit: Kit, method: str, precision: str, **own: Any) -> list[Row]:
    from airrep.attributors.methods import make_attributor

    settings = {"lm": lm_of_that_shape(kit), "device": kit.device, "precision": precision, "store": "none", **own}
    made = make_attributor(method, settings)
    some = list(examples(kit.sized(256, 4)))
    begun = time.perf_counter()
    made.fit(examples(kit.sized(512, 4)))
    _wait(kit)
    fit = {"what": f"{method} fit", "precision": precision, "seconds": time.perf_counter() - begun}
    return [fit, measured(kit, f"{method} encode", precision, lambda: made.encode_train(some), len(some), "examples")]


def bench_logra(kit: Kit, precision: str) -> list[Row]:
    """LoGra of rank 16 (rank 4 in a dry run) on all linear maps."""
    return _projected(kit, "logra", precision, rank=kit.sized(16, 4), modules=["all-linear"])


def bench_tracin(kit: Kit, precision: str) -> list[Row]:
    """TracIn."""
    return _projected(kit, "tracin", precision, rank=kit.sized(16, 4))


def bench_ekfac(kit: Kit, precision: str) -> list[Row]:
    """EK-FAC: fit on a sample, then training examples that pass queries."""
    from airrep.attributors.methods import make_attributor

    settings = {"lm": lm_of_that_shape(kit), "device": kit.device, "precision": precision, "store": "none"}
    more = {"sample": kit.sized(512, 4), **({"modules": ["*.0.mlp.down_proj"]} if kit.tiny else {})}
    made: Any = make_attributor("ekfac", {**settings, **more})
    train, queries = examples(kit.sized(512, 4)), list(examples(kit.sized(32, 2), "queries"))
    begun = time.perf_counter()
    made.fit(train)
    _wait(kit)
    rows: list[Row] = [{"what": "ekfac fit", "precision": precision, "seconds": time.perf_counter() - begun}]
    some, pairs = list(train)[: kit.sized(256, 4)], kit.sized(256, 4) * len(queries)
    rows.append(measured(kit, "ekfac score", precision, lambda: made.score(some, queries), pairs, "pairs"))
    return rows


def bench_train(kit: Kit, precision: str) -> list[Row]:
    """Steps of encoder training on all layers."""
    import numpy as np

    from airrep.labels.labels import LabelledInstance
    from airrep.runtime.devices import Team
    from airrep.scoring.groups import Groups
    from airrep.training.examples import Batches, Collector
    from airrep.training.settings import TrainingSettings
    from airrep.training.start import load_start, with_trainable_head
    from airrep.training.step import add_gradients
    from airrep.training.trunk import make_trunk

    values = {"precision": precision, "device": kit.device, "train_layers": "all", "memory_budget": 40.0}
    settings = TrainingSettings.of({**values, **({"max_tokens": 32} if kit.tiny else {})})
    corpus, drawn = examples(2000), np.random.default_rng(0)
    train = corpus.take(range(kit.sized(1500, 20)))
    queries = corpus.take(range(kit.sized(1500, 20), kit.sized(2000, 26)))
    subsets = {str(j): drawn.choice(len(train), kit.sized(100, 5), replace=False) for j in range(kit.sized(60, 4))}
    losses = 3 + drawn.standard_normal((len(queries), len(subsets))).astype(np.float32)
    instance = LabelledInstance("a", train, queries, Groups.from_lists(subsets), losses)
    start = load_start(settings)
    collector = Collector(start)
    taught = collector.prepare_taught(instance, "std")
    model = with_trainable_head(start.checkpoint.model, settings).to(kit.device)
    trunk = make_trunk(model, collector.texts(), settings, Team(device=kit.device), kit.work / "activations")
    draw = Batches([taught.usable_queries], [taught.usable_subsets], kit.sized(256, 4), kit.sized(32, 3), 0).draw(0)
    texts = add_gradients(trunk, taught, draw, settings, 0)[1]
    tokens = int(trunk.texts.lengths[texts.rows].sum())

    def step() -> None:
        for _, parameter in trunk.learning():
            parameter.grad = None
        add_gradients(trunk, taught, draw, settings, 0)

    return [measured(kit, "training step, all layers", precision, step, tokens, "tokens")]


STAGES: dict[str, Callable[[Kit, str], list[Row]]] = {
    "encode": bench_encode,
    "lm": bench_lm,
    "checkpointing": bench_checkpointing,
    "tracin": bench_tracin,
    "logra": bench_logra,
    "ekfac": bench_ekfac,
    "train": bench_train,
}


def scoring(kit: Kit) -> list[Row]:
    """Group scores of many features, as training and evaluation ask for them."""
    import numpy as np

    from airrep.scoring.blocks import Block
    from airrep.scoring.group_scores import group_scores
    from airrep.scoring.groups import Groups
    from airrep.scoring.products import ask

    drawn = np.random.default_rng(0)
    rows, width, asked = kit.sized(300_000, 200), 384, kit.sized(256, 4)
    features = drawn.standard_normal((rows, width)).astype(np.float32)
    queries = drawn.standard_normal((asked, width)).astype(np.float32) / width**0.5
    groups = Groups.from_lists({str(j): drawn.choice(rows, rows // 20, replace=False) for j in range(20)})
    blocks = [Block(0, features)]
    found = []
    for pool in ("sum", "attention"):

        def work(pool: str = pool) -> object:
            return group_scores(ask(queries, blocks, device=kit.device), groups, pool)

        found.append(measured(kit, f"group scores, {pool}", "float32", work, rows * asked, "pairs"))
    return found


def profile(kit: Kit, precision: str) -> list[Row]:
    """Where the seconds of a few steps of a fine-tune go, whose batches have shapes that were not seen before."""
    import torch
    from torch import profiler

    from airrep.lm.settings import FineTuneSettings

    lm = _lm(kit, precision)
    documents = documents_of(kit, lm, kit.sized(192, 4))
    half = len(documents) // 2
    tuning = FineTuneSettings(epochs=1)
    lm.fine_tune(documents.take(range(half)), tuning, 0)  # what is made once for a process
    kinds = [profiler.ProfilerActivity.CPU, *([profiler.ProfilerActivity.CUDA] if kit.cuda else [])]
    with profiler.profile(activities=kinds) as seen:
        lm.fine_tune(documents.take(range(half, len(documents))), tuning, 0)
        _wait(kit)
    spent = sorted(seen.key_averages(), key=lambda one: one.self_cpu_time_total, reverse=True)
    of_processor = sum(one.self_cpu_time_total for one in spent)
    of_card = sum(one.self_device_time_total for one in spent if one.device_type == torch.autograd.DeviceType.CUDA)
    rows: list[Row] = [{"what": "all", "precision": precision, "seconds": of_processor / 1e6, "card": of_card / 1e6}]
    for one in spent[:8]:
        row = {"what": one.key, "precision": precision, "seconds": one.self_cpu_time_total / 1e6, "calls": one.count}
        rows.append(row | {"of the processor": one.self_cpu_time_total / of_processor})
    return rows


# The label farm.


def farm(kit: Kit, role: str) -> list[Row]:
    """Labels of one role by SmolLM2-135M; interrupted, it goes on where it stopped."""
    lm, data = (str(kit.lm) if kit.lm else None), kit.data
    if kit.tiny:
        lm, data = small_lm(), None
    elif lm is None or data is None or not (data / f"{role}.jsonl").is_file():
        raise LeftOutError(f"expected --lm FOLDER and --data FOLDER with {role}.jsonl")
    pool = _usable(kit, role, lm, data)
    plan, out = kit.work / f"plan-{role}", kit.out / "labels" / role
    out.parent.mkdir(parents=True, exist_ok=True)
    shape = [f"--train-count={kit.sized(4000, 12)}", f"--query-count={kit.sized(200, 3)}"]
    shape += [f"--subsets={kit.sized(100, 2)}", f"--size={kit.sized(1000, 4)}"]
    own = ["--device", kit.device, "--set", "max_tokens=512", "--precision", "float32" if kit.tiny else "bfloat16"]
    begun = time.perf_counter()
    _airrep("sample", str(pool), "--out", str(plan), "--instances", "1", *shape)
    workers = [] if kit.tiny else ["--workers", "4"]  # which share the card
    _airrep("label", str(plan), str(pool), "--lm", lm, "--out", str(out), "--set", "learning_rate=1e-4", *own, *workers)
    from airrep.labels.labels import Labels

    losses = Labels(out).losses(0)
    spent = time.perf_counter() - begun
    return [{"what": f"labels of {role}", "shape": str(losses.shape), "seconds of the last call": spent}]


def _usable(kit: Kit, role: str, lm: str, data: Path | None) -> Path:
    """The role's examples that the LM can read, drawn once."""
    import airrep
    from airrep.lm.model import load_lm
    from airrep.lm.settings import LmSettings

    path = kit.work / f"{role}.jsonl"
    if not path.is_file():
        corpus = examples(20) if data is None else airrep.read_corpus(data / f"{role}.jsonl")
        unusable = load_lm(LmSettings.of({"lm": lm, "device": "cpu", "max_tokens": 512})).unusable(list(corpus))
        corpus.take([row for row in range(len(corpus)) if row not in unusable]).to_jsonl(path)
    return path


def _airrep(*words: str) -> None:
    status = subprocess.run([sys.executable, "-m", "airrep", *words], check=False).returncode
    if status:
        raise SystemExit(status)


def main() -> None:
    """Run one piece and write its result."""
    name, out, kit = sys.argv[1:]
    from transformers.utils import logging

    logging.disable_progress_bar()
    Path(out).write_text(json.dumps(run(name, Kit.of(json.loads(kit)))), "utf-8")


if __name__ == "__main__":
    main()
