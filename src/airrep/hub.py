"""Fetch models from the Hugging Face Hub, or from its cache on this machine."""

from collections.abc import Sequence
from pathlib import Path

from airrep.errors import ConfigError


def download(kind: str, name: str, patterns: Sequence[str], instead: str) -> Path:
    """Return the folder of a public model.

    Args:
        kind: what errors call it, such as ``"encoder"``.
        name: ``owner/name``.
        patterns: the files that are wanted; give none of pickles or programs.
        instead: what can be done without the Hub, as the sentence of an error says it.

    Raises:
        ConfigError: the Hub has no such public model, or cannot be asked.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    missing = f"{kind} {name}: there is no such folder"
    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except RepositoryNotFoundError as error:
        raise ConfigError(
            f"{missing}, and the Hugging Face Hub has no such public model. Check the name, or log in: hf auth login"
        ) from error
    except (OSError, ValueError, HfHubHTTPError) as error:
        raise ConfigError(
            f"{missing}, and the Hugging Face Hub could not be asked ({type(error).__name__}). {instead}"
        ) from error
