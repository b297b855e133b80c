"""Adapters of random numbers on tiny LMs, written by peft itself."""

from pathlib import Path
from typing import Any

import torch


def write_adapters(base: str, out: Path, **config: Any) -> Any:
    """Write adapters of random numbers on a base; returns the model that has them."""
    import peft
    from transformers import AutoModelForCausalLM

    targets = ["c_attn", "c_fc"] if "gpt2" in base else ["q_proj", "v_proj", "down_proj"]
    fan = {"fan_in_fan_out": True} if "gpt2" in base else {}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = peft.get_peft_model(
            AutoModelForCausalLM.from_pretrained(base),
            peft.LoraConfig(
                **{"task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8, "target_modules": targets, **fan, **config}
            ),
        )
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data += 0.1 * torch.randn(parameter.shape)
    model.save_pretrained(out)
    return model.eval()
