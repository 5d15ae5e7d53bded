"""The tokens that a head may propose: those that the model uses most, as in FR-Spec (2502.14856). Pure."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from mtplx.engine.training.texts import Text

TokenIds = npt.NDArray[np.int32]


def frequent_tokens(texts: Iterable[Text], size: int, vocab_size: int) -> TokenIds | None:
    """The `size` tokens [N] that the texts hold most often where they are to be foreseen, ascending.

    Among equals those of lower ids come first: tokenizers number frequent tokens before rare ones. None, for all
    tokens, if that is what `size` comes to.
    """
    if size >= vocab_size:
        return None
    counts = count_tokens(texts, vocab_size)
    return np.sort(np.argsort(-counts, kind="stable")[:size]).astype(np.int32)


def coverage(token_ids: TokenIds | None, texts: Iterable[Text], vocab_size: int) -> float:
    """The share of the tokens to be foreseen that are among these; 1 if there are no texts."""
    counts = count_tokens(texts, vocab_size)
    if token_ids is None or not counts.sum():
        return 1.0
    return float(counts[token_ids].sum() / counts.sum())


def count_tokens(texts: Iterable[Text], vocab_size: int) -> npt.NDArray[np.int64]:
    """How often each token [V] is to be foreseen."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for text in texts:
        counts += np.bincount(text.tokens[text.num_given :], minlength=vocab_size)
    return counts
