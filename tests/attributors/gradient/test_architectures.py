"""Every architecture is read as transformers reads it: losses, and gradients of each map, packed and one by one."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from worlds.architectures import ARCHITECTURES, written
from worlds.double_lms import executed

from airrep.attributors.gradient.projection import project_gradients
from airrep.attributors.gradient.reading import find_sites, unread
from airrep.lm.documents import Documents
from airrep.lm.model import load_lm
from airrep.lm.settings import LmSettings

FAST = ("gpt2", "gemma2", "mixtral", "gpt_oss", "mamba", "stablelm")
"""Read in `make check` too."""
TOKENS = 60
"""Of a batch: the last three documents lie in one."""
SETTINGS = {"device": "cpu", "precision": "float32", "batch_tokens": TOKENS}
DOCS = Path(__file__).parents[3] / "docs" / "gradients.md"


def some_documents() -> Documents:
    """Documents longer and shorter than the windows, of 16 tokens."""
    rng = np.random.default_rng(1)
    lengths = ((40, 20), (23, 1), (20, 9), (12, 4), (12, 3), (5, 1))
    return Documents.of((rng.integers(8, 250, length), start) for length, start in lengths)


def plain_losses(model: Any, documents: Documents, row: int) -> torch.Tensor:
    """What transformers gives each response token of one document alone."""
    ids, start = torch.from_numpy(documents.sequence(row)), int(documents.starts[row])
    logits = model(input_ids=ids[None], use_cache=False).logits[0, start - 1 : -1]
    return functional.cross_entropy(logits, ids[start:], reduction="none")


def plain_gradients(model: Any, documents: Documents, names: Sequence[str]) -> np.ndarray:
    """Gradients of each document by itself, of maps given by name; those that autograd does not reach are zero."""
    parameters, rows = dict(model.named_parameters()), []
    for row in range(len(documents)):
        model.zero_grad(set_to_none=True)
        plain_losses(model, documents, row).mean().backward()
        parts = [_one_map(model, parameters, name) for name in names]
        rows.append(np.concatenate([each.numpy().ravel() for each in parts]))
    return np.stack(rows)


def _one_map(model: Any, parameters: dict[str, Any], name: str) -> torch.Tensor:
    """The gradient of a map, (out, in): ``LAYER.experts.3.down_proj`` is the third matrix of one weight."""
    inside = re.fullmatch(r"(.*)\.(\d+)\.(\w+_proj)", name)
    if f"{name}.weight" in parameters:
        weight = parameters[f"{name}.weight"]
        found = torch.zeros_like(weight) if weight.grad is None else weight.grad
        return found.T if type(model.get_submodule(name)).__name__ == "Conv1D" else found
    assert inside is not None
    owner, expert, own = inside.groups()
    found = parameters[f"{owner}.{own}"].grad[int(expert)]
    return found.T if "GptOss" in type(model).__name__ else found  # which alone keeps them as (in, out)


def unlike(found: np.ndarray, wanted: np.ndarray) -> float:
    """Largest length of a row's difference, relative to the row."""
    return float((np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)).max())


def doubled(model: Any) -> Any:
    """A model in float64, its experts in the loop that its own code has: the others know float32 alone."""
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return model.double()


def documented(where: str) -> set[str]:
    """The types that the table of the docs names in a row."""
    row = next(line for line in DOCS.read_text("utf-8").splitlines() if line.startswith(f"| {where} "))
    return set(re.findall(r"`([^`]+)`", row))


@pytest.mark.parametrize(
    "kind", [kind if kind in FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in ARCHITECTURES]
)
def test_each_architecture_is_read_as_transformers_reads_it(kind: str, tmp_path: Path) -> None:
    plain = written(tmp_path, kind)
    lm, documents = load_lm(LmSettings(lm=str(tmp_path), **SETTINGS)), some_documents()
    packed = lm.execution.batch_tokens > 1
    assert kind.split()[0] in documented("packed" if packed else "one at a time")
    with torch.no_grad():
        for row, found in enumerate(lm.token_losses(documents)):
            np.testing.assert_allclose(found, plain_losses(plain, documents, row), atol=1e-5)

    lm.model.double()
    sites = find_sites(lm.model, ("all-linear",), "lm")
    wanted = plain_gradients(doubled(plain), documents, [site.name for site in sites])
    for batch_tokens, padding in [(TOKENS, 0), (TOKENS, 30), (1, 0)][0 if packed else 2 :]:
        way = executed(lm, batch_tokens=batch_tokens, padding=padding)
        assert unlike(project_gradients(way, documents, sites, None).features, wanted) < 1e-6

    told = unread(lm.model, "logra")
    read = {f"{site.name}.weight" for site in sites} | {re.sub(r"\.\d+(\.\w+)$", r"\1", site.name) for site in sites}
    apart = ("embed", "wte", "wpe", "lm_head", "embed_out", "bias")
    for name, weight in plain.named_parameters():
        if weight.dim() > 1 and name not in read and not any(word in name for word in apart) and told:
            assert re.sub(r"\.\d+(?=\.)", ".*", name) in told


def test_the_docs_name_the_types_that_are_tested() -> None:
    assert documented("packed") | documented("one at a time") == {kind.split()[0] for kind in ARCHITECTURES}
