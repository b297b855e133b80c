"""One of several processes that train with the callback: python trained_in_processes.py RECORD EXAMPLES [WHAT]."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments
from worlds.tiny_lms import tiny_network

from airrep import AttributionCallback
from airrep.errors import AirRepError


class Rows(torch.utils.data.Dataset):
    """Sequences whose second token is their row."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        ids = torch.tensor([1, row + 2, 3, 3, 3, 3])
        return {"input_ids": ids, "labels": ids.clone()}


class Watched(Trainer):
    """Remembers which rows each step's forward passes saw."""

    seen: dict[int, list[int]]

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        rows = (inputs["input_ids"][:, 1] - 2).tolist()
        self.seen.setdefault(self.state.global_step + 1, []).extend(rows)
        return super().training_step(model, inputs, *args, **kwargs)


def main(record: Path, count: int, resume: bool) -> None:
    """Train, and write what this process saw beside the record."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        str(record) + "-out",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        logging_steps=1,
        save_strategy="steps",
        save_steps=2,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    made = Watched(
        tiny_network(vocab_size=64), arguments, train_dataset=Rows(count), callbacks=[AttributionCallback(record)]
    )
    made.seen = {}
    rank = arguments.process_index
    try:
        made.train(resume_from_checkpoint=f"{record}-out/checkpoint-2" if resume else None)
    except AirRepError as error:
        record.with_name(f"refused-{rank}").write_text(str(error))
        return
    record.with_name(f"seen-{rank}.json").write_text(json.dumps(made.seen))


if __name__ == "__main__":
    more = sys.argv[3:]
    main(Path(sys.argv[1]), int(sys.argv[2]), more == ["resume"])
    if more == ["again"]:
        main(Path(sys.argv[1]), int(sys.argv[2]), False)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        sys.stdout.flush()
        os._exit(0)  # threads of gloo that still run would, now and then, abort an ordinary end
