"""A part of the vocabulary, which a drafter may be confined to, and where tokens stand in it."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mtplx.engine.types import Distribution

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PartOfVocabulary:
    """The tokens `ids` [N], ascending, of a vocabulary of `size`."""

    ids: npt.NDArray[np.int64]
    size: int

    def all_probabilities(self, probabilities: Distribution) -> Distribution:
        """Probabilities [V] by those [N] of the part: the other tokens are impossible."""
        spread = np.zeros(self.size)
        spread[self.ids] = probabilities
        return spread


def places_of(
    tokens: Iterable[int] | Places, part: PartOfVocabulary | None
) -> tuple[Places, npt.NDArray[np.bool_] | slice]:
    """Where those tokens stand that are of the part, and which of them are; in a whole each is at its own number."""
    wanted = tokens if isinstance(tokens, np.ndarray) else np.fromiter(tokens, dtype=np.int64)
    if part is None:
        return wanted, slice(None)
    places = np.searchsorted(part.ids, wanted)
    are_there = part.ids[np.minimum(places, len(part.ids) - 1)] == wanted
    return places[are_there], are_there
