"""LMs in float64, their documents as the reference takes them, and their plain loss."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from reference import gradients as reference
from torch import Tensor

from airrep.attributors.gradient.reading import Site
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.settings import LmSettings

SMALL = {"hidden_size": 8, "intermediate_size": 6}


def wide(folder: str, **settings: Any) -> TargetLM:
    """The LM of a folder, its weights in float64."""
    lm = load_lm(LmSettings(**{"lm": folder, "precision": "float32", "device": "cpu", **settings}))
    lm.model.double()
    return lm


def executed(lm: TargetLM, **changes: Any) -> TargetLM:
    """The same LM, run in another way."""
    lm.execution = dataclasses.replace(lm.execution, **changes)
    return lm


def listed(documents: Documents) -> list[reference.Document]:
    """Documents as the reference takes them."""
    return [(documents.sequence(row).tolist(), int(documents.starts[row])) for row in range(len(documents))]


def plain(lm: TargetLM) -> Any:
    """The LM as transformers loads it."""
    return reference.load(str(lm.files.folder))


def naive_loss(
    lm: TargetLM, documents: Documents, sites: Sequence[Site], reduction: str = "mean"
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The mean loss of documents read one by one as a function of some weights, and these weights.

    Each map's weight is put in as (out, in), flat, so that the order of numbers is that of gradients.
    """
    model = plain(lm)
    model.set_attn_implementation("eager")
    maps = reference.linear_maps(model)
    turned = [reference.is_transposed(maps[site.name]) for site in sites]
    start = [w.T if t else w for w, t in zip((maps[site.name].weight.detach() for site in sites), turned, strict=True)]

    def mean_loss(weights: Tensor) -> Tensor:
        parts = zip(sites, weights.split([w.numel() for w in start]), start, turned, strict=True)
        named = {f"{s.name}.weight": p.reshape(w.shape).T if t else p.reshape(w.shape) for s, p, w, t in parts}

        def run(**inputs: Tensor) -> Any:
            return torch.func.functional_call(model, named, (), inputs)

        return torch.stack([reference.value(run, each, "loss", reduction) for each in listed(documents)]).mean()

    return mean_loss, torch.cat([w.reshape(-1) for w in start])
