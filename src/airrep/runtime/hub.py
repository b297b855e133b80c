"""Fetch models from the Hugging Face Hub, or from its cache on this machine."""

from collections.abc import Sequence
from pathlib import Path

from airrep.errors import ConfigError


def download(kind: str, name: str, patterns: Sequence[str], instead: str) -> Path:
    """Return the folder of a public model.

    Args:
        kind: what errors call it, such as ``"encoder"``.
        name: ``owner/name``.
        patterns: the files that are wanted; give none of pickles, and of programs only those of a trusted model.
        instead: what can be done without the Hub, as the sentence of an error says it.

    Raises:
        ConfigError: the Hub has no such public model, does not give it to this user, or cannot be asked.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    unreachable: tuple[type[Exception], ...] = (OSError, ValueError, *_transport_errors(HfHubHTTPError))
    missing = f"{kind} {name}: there is no such folder"
    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except GatedRepoError as error:
        raise _refused(kind, name) from error
    except RepositoryNotFoundError as error:
        raise ConfigError(
            f"{missing}, and the Hugging Face Hub has no such public model. Check the name, or log in: hf auth login"
        ) from error
    except unreachable as error:
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
            raise _refused(kind, name) from error
        raise ConfigError(
            f"{missing}, and the Hugging Face Hub could not be asked ({type(error).__name__}). {instead}"
        ) from error


def _refused(kind: str, name: str) -> ConfigError:
    return ConfigError(
        f"{kind} {name}: the Hugging Face Hub gives it only to users who were granted access, which you are not (yet). "
        "Ask for access on its page there, then log in: hf auth login"
    )


def _transport_errors(kind: type[Exception]) -> tuple[type[Exception], ...]:
    """What the library under the Hub's own raises when a connection fails: the bases of the Hub's error."""
    return tuple(base for base in kind.__mro__ if issubclass(base, Exception) and base is not Exception)
