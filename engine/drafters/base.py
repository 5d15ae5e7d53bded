"""What a drafter is, and drafting from any model of the next token. Knows no particular drafter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mtplx.engine.sampling import as_distribution, draw
from mtplx.engine.types import Draft

if TYPE_CHECKING:  # generate_draft is public and works on arrays alone: it must not load MLX
    from mtplx.engine.sequence import Outcome
    from mtplx.engine.sequence import Sequence as DecodedSequence


MAX_CONFIDENCE = 8


class Drafter(Protocol):
    """Proposes tokens. It may raise: that costs speed and is counted, but never changes output."""

    @property
    def name(self) -> str: ...

    def confidence(self, sequence: DecodedSequence) -> int:
        """How good a draft would be now: 0, or up to MAX_CONFIDENCE where the drafter can tell more.

        Drafts of one confidence are expected to survive alike; what that means is measured, not declared.
        """
        ...

    def propose(self, sequences: Sequence[DecodedSequence], depths: Sequence[int]) -> list[Draft]:
        """A draft for each sequence, at most as long as its depth (at least 1), perhaps empty.

        The distributions of a draft are exactly those that its tokens were drawn from.
        """
        ...

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """What became of the drafts last proposed for these sequences."""
        ...


def generate_draft(
    next_distribution: Callable[[tuple[int, ...]], Any],
    context: Sequence[int],
    depth: int,
    rng: np.random.Generator | None = None,
) -> Draft:
    """Draw `depth` tokens one after the other.

    `next_distribution` maps a context to probabilities [V], a numpy or MLX array. The draft carries the distribution
    of each token, as verification needs them.
    """
    rng = rng or np.random.default_rng()
    tokens = tuple(context)
    distributions = []
    for _ in range(depth):
        distributions.append(as_distribution(next_distribution(tokens)))
        tokens += (draw(distributions[-1], rng.random()),)
    return Draft(tokens[len(context) :], distributions)
