"""The draft heads that come with this project, which models that they were trained for are served with.

A folder each in `configs/heads`, as `mtplx train-head` writes it. Knows where they lie and how to tell whose they are.
"""

import logging
from dataclasses import replace
from pathlib import Path

import mtplx.configs
from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.head_folder import HeadTarget, head_target, load_head, read_head_config
from mtplx.engine.models.loaded import LoadedModel

logger = logging.getLogger(__name__)

HEADS = Path(mtplx.configs.__file__).parent / "heads"


def with_shipped_head(loaded: LoadedModel, heads: Path = HEADS) -> LoadedModel:
    """The model with the head that was trained for just these weights, if there is one and it brings none along.

    Call it once the model's layers are native, if they are to be: the head's product is made of them.
    """
    target = None if loaded.draft_head is not None else _target(loaded)
    if target is None:
        return loaded
    try:
        for folder in sorted(heads.glob("*/")):
            if read_head_config(folder).target == target:
                return replace(loaded, draft_head=load_head(folder, loaded))
    except ModelLoadError as error:
        logger.warning("a draft head that comes with mtplx is not used: %s", error)
    return loaded


def _target(loaded: LoadedModel) -> HeadTarget | None:
    """What a head of the model would be known by; None for a model that holds its parts where nobody looks for them."""
    try:
        return head_target(loaded)
    except Exception:  # models fail in their own ways
        return None
