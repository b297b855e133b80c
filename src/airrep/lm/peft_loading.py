"""Adapters that peft wrote: read, put into a model, compared with their file."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from airrep.errors import ConfigError, need
from airrep.lm.folders.forms import ADAPTER, ADAPTER_CONFIG

NAME = "default"
"""Name of adapters inside a model."""


class StoredAdapters:
    """Adapters in a folder; every number of their file is checked to be finite, and to be in the model after loading.

    Errors begin with *where*, and end with *remedy* if the adapters belong to another LM.

    Raises:
        ConfigError: the file cannot be read, or a weight is not finite.
    """

    def __init__(self, folder: Path, where: str, remedy: str) -> None:
        self._folder, self._where, self._remedy = folder, where, remedy
        try:
            self.weights = load_file(folder / ADAPTER)
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"{where}: {ADAPTER} cannot be read: {first_line(error)}. Save it again.") from error
        damaged = next((key for key, tensor in self.weights.items() if not bool(torch.isfinite(tensor).all())), None)
        if damaged is not None:
            raise ConfigError(f"{where}: weight {damaged} in {ADAPTER} is not finite. Use another checkpoint.")

    def put_into(self, model: Any) -> Any:
        """The model as peft wraps it, with the adapters between its weights.

        Raises:
            ConfigError: they do not fit the model.
            MissingExtraError: the package peft is missing.
        """
        need(f"{self._where}: {ADAPTER}", "peft", "peft")
        from peft import PeftModel

        with self.fitting(model, "loaded"):
            # peft would read the file onto a CUDA device wherever there is one, whatever device the LM is on.
            wrapped = PeftModel.from_pretrained(
                model, self._folder, adapter_name=NAME, is_trainable=False, torch_device="cpu"
            )
            self._check_loaded(wrapped)
        return wrapped

    @contextmanager
    def fitting(self, model: Any, done: str) -> Iterator[None]:
        """Let what peft raises, where adapters cannot be *done* into a model, become a one-line ConfigError."""
        kind = type(model).__name__
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of names that do not fit and of tied weights, which are refused
                yield
        except ConfigError:
            raise
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError) as error:
            raise ConfigError(
                f"{self._where}: {ADAPTER} cannot be {done} into a {kind}: {first_line(error)}. {self._remedy}"
            ) from error

    def _check_loaded(self, wrapped: Any) -> None:
        """Refuse adapters in a model that are not those of their file: peft passes over names that do not fit."""
        from peft import get_peft_model_state_dict

        stored = self.weights
        loaded = get_peft_model_state_dict(wrapped, adapter_name=NAME, save_embedding_layers=False)
        if any(".lora_" not in name for name in stored):  # whole layers beside the low-rank maps
            loaded = {**get_peft_model_state_dict(wrapped, adapter_name=NAME, save_embedding_layers=True), **loaded}
            loaded = {name: tensor for name, tensor in loaded.items() if name in stored or ".lora_" in name}
        absent = next((name for name in loaded if name not in stored), None)
        if absent is not None:
            raise ConfigError(
                f"{self._where}: {ADAPTER} has no {absent}, which would be random; expected all that {ADAPTER_CONFIG} "
                "names. Save the adapters again."
            )
        for name, tensor in stored.items():
            if name not in loaded or not torch.equal(loaded[name].detach().cpu(), tensor.to(loaded[name].dtype)):
                raise ConfigError(
                    f"{self._where}: {name} of {ADAPTER} is not in the LM after loading, so the adapters belong to "
                    f"another. {self._remedy}"
                )


def first_line(error: Exception) -> str:
    """What an error says in its first line, or else its type."""
    return str(error).strip().partition("\n")[0].rstrip(".:")[:300] or type(error).__name__
