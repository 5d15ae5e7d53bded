"""Model folders from the Hugging Face hub. Knows which files mlx-lm needs and what can go wrong on the way."""

import re
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils.tqdm import tqdm

from mtplx.engine.errors import ModelLoadError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
FILES = ["*.json", "*.jsonl", "*.jinja", "*.txt", "*.tiktoken", "tokenizer.model", "model*.safetensors"]


def download(hub_id: str, *, progress: bool) -> Path:
    """The local folder of the model `hub_id`, downloaded if it isn't there already, with a bar if `progress`.

    Raises ModelLoadError when the id isn't one, or the model can't be had.
    """
    if not HUB_ID.fullmatch(hub_id):
        raise ModelLoadError(_explain(hub_id, HFValidationError()))
    try:
        return Path(snapshot_download(hub_id, allow_patterns=FILES, tqdm_class=None if progress else _NoBar))
    except Exception as error:  # below the hub's own errors lie those of an HTTP library, which has changed before
        raise ModelLoadError(_explain(hub_id, error)) from error


def _explain(hub_id: str, error: Exception) -> str:
    match error:
        case HFValidationError():
            return f"'{hub_id}' is no file or folder here and no hub id; name a .gguf file, a folder or owner/name"
        case GatedRepoError():
            return f"access to '{hub_id}' must be granted: ask at https://huggingface.co/{hub_id}, then set HF_TOKEN"
        case RepositoryNotFoundError():
            return f"the hub has no model '{hub_id}'; check the spelling, and for a private model set HF_TOKEN"
        case LocalEntryNotFoundError() | ConnectionError():
            return f"'{hub_id}' isn't on this machine and the hub can't be reached; check the network or HF_HUB_OFFLINE"
        case HfHubHTTPError():
            return f"the hub refuses '{hub_id}' ({error}); try again later"
        case OSError():
            return f"'{hub_id}' can't be stored ({error}); check the space on disk and the rights of HF_HOME"
        case _:
            return f"the download of '{hub_id}' broke off ({error}); try again, what has arrived is kept"


class _NoBar(tqdm):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **(options | {"disable": True}))  # type: ignore[no-untyped-call]
