"""Work for engines, in a module that workers import quickly."""

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from airrep.errors import ArtifactError, ConfigError, MissingExtraError, TrainingError


def square(number: int) -> int:
    return number * number


def make_square() -> Callable[[int], int]:
    return square


class Stumbling:
    """Work that goes wrong at some tasks; a folder remembers what was tried."""

    def __init__(self, folder: Path, how: str) -> None:
        self.folder = folder
        self.how = how

    def __call__(self) -> Callable[[int], int]:
        if self.how == "no setup":
            raise ConfigError("setup: cannot be. Correct it.")
        if self.how == "dead setup":
            os.kill(os.getpid(), signal.SIGKILL)
        return self.work

    def work(self, number: int) -> int:
        if number == 3 and self.how == "once" and not (self.folder / "tried").exists():
            (self.folder / "tried").touch()
            raise TrainingError("loss: is not finite.")
        if number == 3 and self.how == "always":
            raise TrainingError("loss: is not finite.")
        if number == 1 and self.how == "each way":
            raise TrainingError("loss: is not finite.")
        once = (number, self.how) in ((2, "each way"), (3, "killed once"))
        if once and not (self.folder / "tried").exists():
            (self.folder / "tried").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 3 and self.how in ("killed", "each way"):
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 3 and self.how == "disk":
            raise ArtifactError("there: cannot be written.")
        if number == 3 and self.how == "extra":
            raise MissingExtraError("lora", "peft")
        if number == 3 and self.how == "bug":
            raise ZeroDivisionError
        return number * number


class RunsProgram:
    """Work that runs a program, and its process ids in a folder; the second task ends while the first one's runs."""

    def __init__(self, folder: Path, ending: str) -> None:
        self.folder, self.ending = folder, ending

    def __call__(self) -> Callable[[int], int]:
        return self.work

    def work(self, number: int) -> int:
        program = self.folder / "program"
        if number == 0:
            # As a user's script that starts a trainer, which notes its id.
            code = f"sleep 600 & echo $! > {program}.tmp; mv {program}.tmp {program}; wait"
            return subprocess.run(["sh", "-c", code], check=False).returncode
        while not program.exists():
            time.sleep(0.01)
        if self.ending == "error":
            raise ConfigError("work: cannot be.")
        return number


class FullDisk:
    """Work in which the first worker that comes has no room on its disk; a folder remembers which."""

    def __init__(self, folder: Path, when: str) -> None:
        self.mark, self.when = folder / "full", when

    def __call__(self) -> Callable[[int], int]:
        if self.when == "before":
            self._write()
        return self.work

    def work(self, number: int) -> int:
        self._write()
        return number * number

    def _write(self) -> None:
        with suppress(FileExistsError), self.mark.open("x") as stream:
            stream.write(str(os.getpid()))
        if self.mark.read_text() == str(os.getpid()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def count_threads(_: int) -> tuple[int, str]:
    import torch

    return torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS", "")


def make_count() -> Callable[[int], tuple[int, str]]:
    return count_threads


def name_gpu(_: int) -> str | None:
    time.sleep(0.1)
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def make_name_gpu() -> Callable[[int], str | None]:
    return name_gpu


def name_process(_: int) -> int:
    time.sleep(0.2)
    return os.getpid()


def make_name_process() -> Callable[[int], int]:
    return name_process
