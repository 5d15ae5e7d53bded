"""Which drafter and depth make the next round pay most. Pure functions of costs and survival; nothing is learnt here.

With V(m) the cost of a round of m rows, d that of drafting a token and s_i the probability that a draft survives up to
position i, a round of depth k takes (k·d + V(k + 1)) / (1 + s_1 + … + s_k) for each token of output. What is least is
best; k = 0 is plain decoding (the speedup of Leviathan et al., 2211.17192, with measured costs). Where a drafter ends
its drafts early, costs and gains are those of the positions that are drafted at all.
"""

from collections.abc import Sequence
from typing import NamedTuple

_MARGIN = 0.03  # a change must promise this much


class Worth(NamedTuple):
    """The chances to survive at which a token is worth drafting, and one drafted already worth verifying."""

    drafting: float
    verifying: float


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


def early_option(
    drafter: str,
    shares: Sequence[float],
    reaches: Sequence[float],
    curve: Sequence[float],
    draft_s: float,
    start_s: float = 0.0,
) -> Option:
    """Asking for as many tokens as there are `reaches`, of a drafter that ends its drafts where more would not pay.

    `reaches` are the probabilities that a token is drafted at each position, `shares` that it is and survives; the
    others as for `depth_options`.
    """
    round_s = curve[0]
    for position, reach in enumerate(reaches, 1):
        round_s += reach * (draft_s + curve[position] - curve[position - 1])
    return Option(round_s / (1.0 + sum(shares)) + start_s, drafter, len(reaches))


def choose(options: Sequence[Option], previous: tuple[str, int] | None) -> Option:
    """The best of `options`, or the `previous` drafter and depth if that is among them and about as good."""
    best = min(options)
    least_gain = best.token_s * (1.0 + _MARGIN)
    for option in options:
        if option[1:] == previous and option.token_s <= least_gain:
            return option
    return best


def share_rows(
    shares: Sequence[Sequence[float]],
    draft_s: Sequence[float],
    curve: Sequence[float],
    num_fixed_rows: int,
    most_rows: int,
) -> list[int]:
    """How many draft tokens each of several sequences gets in a round that they share: a depth for each.

    `shares` are s_1 … of each sequence and `draft_s` what drafting a token of it takes; `curve` is V(1) … of rows
    together, at least as far as `most_rows`. The pending tokens and `num_fixed_rows` draft tokens are forwarded in any
    case. Output is a token for each sequence and the sum of the shares that are taken; what is most a second is best. A
    row costs the same whose ever it is, so the likeliest tokens come first, and where to stop is all there is to
    choose.
    """
    ranked = sorted(
        ((share, -index) for index, each in enumerate(shares) for share in each),
        reverse=True,
    )  # of a sequence, shares never rise, so its tokens stay in order
    num_tokens, num_rows = float(len(shares)), len(shares) + num_fixed_rows
    best_rate, num_best = num_tokens / curve[num_rows - 1], 0
    drafting_s = 0.0
    for count, (share, index) in enumerate(ranked[: max(0, most_rows - num_rows)], 1):
        num_tokens += share
        drafting_s += draft_s[-index]
        rate = num_tokens / (drafting_s + curve[num_rows + count - 1])
        if rate > best_rate * (1.0 + _MARGIN):
            best_rate, num_best = rate, count
    depths = [0] * len(shares)
    for _, index in ranked[:num_best]:
        depths[-index] += 1
    return depths
