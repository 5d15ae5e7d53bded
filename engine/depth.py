"""Which drafter and depth make the next round pay most. Pure functions of costs and survival; nothing is learnt here.

With V(m) the cost of a round of m rows, d that of drafting a token and s_i the probability that a draft survives up to
position i, a round of depth k takes (k·d + V(k + 1)) / (1 + s_1 + … + s_k) for each token of output. What is least is
best; k = 0 is plain decoding (the speedup of Leviathan et al., 2211.17192, with measured costs).
"""

from collections.abc import Sequence
from typing import NamedTuple

_MARGIN = 0.03  # a change must promise this much


class Option(NamedTuple):
    """A way to run the next round, and the seconds that it is expected to take for each token. Less is better."""

    token_s: float
    drafter: str
    depth: int


def depth_options(
    drafter: str, shares: Sequence[float], curve: Sequence[float], draft_s: float, start_s: float = 0.0
) -> list[Option]:
    """The options of a drafter, one for each depth from 1 for which there is a share.

    `shares` are s_1 …, `curve` is V(1) …, `draft_s` is d, and `start_s` what starting to use the drafter adds to the
    time for each token.
    """
    num_tokens = 1.0
    options = []
    for depth, share in enumerate(shares, 1):
        num_tokens += share
        options.append(Option((depth * draft_s + curve[depth]) / num_tokens + start_s, drafter, depth))
    return options


def choose(options: Sequence[Option], previous: tuple[str, int] | None) -> Option:
    """The best of `options`, or the `previous` drafter and depth if that is among them and about as good."""
    best = min(options)
    least_gain = best.token_s * (1.0 + _MARGIN)
    for option in options:
        if option[1:] == previous and option.token_s <= least_gain:
            return option
    return best
