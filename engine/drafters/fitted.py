"""A draft model that speaks of the target's tokens: that it is of the same vocabulary, and of how many rows of logits.

Models of one tokenizer pad their embeddings differently. Knows tokenizers and logits; runs no model itself.
"""

from collections.abc import Sequence

import numpy as np

from mtplx.engine.cache import SequenceCache
from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.loaded import LoadedModel
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.types import Logits

_NEVER = np.float32(-1e30)  # a logit of probability 0 at every temperature, and yet finite


class FittedTarget:
    """`model`, whose logits are `num_own` wide, in the guise of one whose logits are `num_wanted` wide.

    Tokens that it lacks are never likely. Where a text has one it stands as token 0: that makes a bad guess, no more.
    """

    def __init__(self, model: Target, *, num_own: int, num_wanted: int) -> None:
        self._model = model
        self._num_own = num_own
        self._num_wanted = num_wanted
        self.way = model.way

    def new_cache(self) -> SequenceCache:
        return self._model.new_cache()

    def forward(self, batch: Sequence[Rows]) -> list[Logits]:
        known = [Rows(rows.cache, self._known(rows.tokens), rows.num_logits) for rows in batch]
        return [self._fit(logits) for logits in self._model.forward(known)]

    def _known(self, tokens: Sequence[int]) -> list[int]:
        return [token if token < self._num_own else 0 for token in tokens]

    def _fit(self, logits: Logits) -> Logits:
        cut = logits[:, : self._num_wanted]  # [n, V]
        missing = self._num_wanted - cut.shape[1]
        return np.pad(cut, [(0, 0), (0, missing)], constant_values=_NEVER) if missing and len(cut) else cut


def check_same_tokens(target: LoadedModel, draft: LoadedModel) -> None:
    """Raises ModelLoadError, which names the first difference, unless both models mean the same by every token."""
    ours, theirs = target.tokenizer.vocabulary(), draft.tokenizer.vocabulary()
    for token in sorted(ours.keys() | theirs.keys()):
        if ours.get(token) != theirs.get(token):
            raise ModelLoadError(
                f"{draft.id} can't draft for {target.id}: token {token} is {_spelled(theirs.get(token))} to it, not "
                f"{_spelled(ours.get(token))}; choose a draft model with the same tokenizer"
            )
    if target.tokenizer.eos_token_ids.isdisjoint(draft.tokenizer.eos_token_ids):
        raise ModelLoadError(
            f"{draft.id} can't draft for {target.id}: a text ends with the tokens "
            f"{sorted(draft.tokenizer.eos_token_ids)} to it, not {sorted(target.tokenizer.eos_token_ids)}"
        )


def _spelled(text: str | None) -> str:
    return "unknown" if text is None else repr(text)
