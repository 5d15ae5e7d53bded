"""How likely a model held tokens to be, from its logits as they are.

Pure functions over logits. Knows no sampling parameter and no draft, so that scores depend on neither.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mtplx.engine.types import Logits, TokenScore


def score_tokens(logits: Logits, tokens: Sequence[int], num_top: int) -> tuple[TokenScore, ...]:
    """Scores of `tokens` [T], each by its row of logits [T, V], which must be finite."""
    return tuple(score_token(row, token, num_top) for row, token in zip(logits, tokens, strict=True))


def score_token(logits: Logits, token: int, num_top: int) -> TokenScore:
    """The score of `token` by log-softmax of logits [V], in float64, beside the `num_top` likeliest."""
    values = logits.astype(np.float64)
    highest = values.max()
    total = float(highest + np.log(np.exp(values - highest).sum()))
    top = tuple((int(each), float(values[each]) - total) for each in likeliest(logits, num_top))
    return TokenScore(token, float(values[token]) - total, top)


def likeliest(logits: Logits, count: int) -> npt.NDArray[np.intp]:
    """The tokens of the highest logits [V], in falling order, the lowest first among equals; all if there are fewer."""
    if count == 0:
        return np.empty(0, dtype=np.intp)
    rank = max(len(logits) - count, 0)
    candidates = np.flatnonzero(logits >= np.partition(logits, rank)[rank])
    return candidates[np.argsort(-logits[candidates], kind="stable")][:count]
