"""Let a causal LM answer prompts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from airrep.arrays import Rows
from airrep.lm.attention import library_attention


def generate(
    model: Any, prompts: Sequence[Sequence[int]], stops: Sequence[int], new_tokens: int, batch_prompts: int
) -> list[list[int]]:
    """Token ids of the most likely next tokens, one after the other (greedy), without the token of *stops* at the end.

    Every prompt has a token at least; *batch_prompts* at a time bound memory.
    """
    answers: list[list[int]] = [[] for _ in prompts]
    order = np.argsort([-len(prompt) for prompt in prompts], kind="stable")
    with library_attention(model), _without_own_settings(model):
        for first in range(0, len(order), batch_prompts):
            rows = order[first : first + batch_prompts]
            found = _answer(model, [prompts[row] for row in rows], stops, new_tokens)
            for row, answer in zip(rows, found, strict=True):
                answers[row] = answer
    return answers


@contextmanager
def _without_own_settings(model: Any) -> Iterator[None]:
    """Leave out the model's own settings of generation: transformers fills with them what :func:`_greedy` leaves open.

    A repetition penalty or beams would choose other tokens than the most likely ones.
    """
    from transformers import GenerationConfig

    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = own


def _answer(model: Any, prompts: list[Sequence[int]], stops: Sequence[int], new_tokens: int) -> list[list[int]]:
    """Answer prompts together: padded at the front, the padding masked."""
    longest = max(map(len, prompts))
    ids: Rows = np.zeros((len(prompts), longest), np.int64)
    mask = np.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    found = model.generate(
        input_ids=torch.from_numpy(ids).to(model.device),
        attention_mask=torch.from_numpy(mask).to(model.device),
        generation_config=_greedy(stops, new_tokens),
    )
    return [_until(answer, set(stops)) for answer in found[:, longest:].tolist()]


def _greedy(stops: Sequence[int], new_tokens: int) -> Any:
    from transformers import GenerationConfig

    # Padding is masked, so any token will do for it.
    return GenerationConfig(
        do_sample=False, max_new_tokens=new_tokens, eos_token_id=list(stops) or None, pad_token_id=0, use_cache=True
    )


def _until(answer: list[int], stops: set[int]) -> list[int]:
    end = next((place for place, token in enumerate(answer) if token in stops), len(answer))
    return answer[:end]
