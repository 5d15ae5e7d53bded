"""The exact law of what a rule makes of drafts, by going through every draft and every way its numbers can fall.

A rule compares a number for each draft position with a threshold, and draws one token at the end. The thresholds are
found by bisection; what is drawn from is caught, for drawing has tests of its own.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from unittest import mock

import numpy as np

from mtplx.engine.randomness import Noise
from mtplx.engine.types import Distribution, Draft, Verdict

Uniform = Callable[[int], float]
Walk = Callable[..., Verdict]  # (target, draft, accept, emit)
Model = Callable[[tuple[int, ...]], Distribution]  # context to the next token's distribution [V]
Law = dict[tuple[int, ...], float]

ALMOST_ONE = 1.0 - 2.0**-53


def run_law(walk: Walk, target: Model, draft: Draft) -> Law:
    """The law of the run that `walk` makes of one draft: accepted tokens and one more."""
    drawn_from: list[Distribution] = []

    def catch(p: Distribution, uniform: float) -> int:
        drawn_from.append(p)
        return 0

    def num_accepted(numbers: Sequence[float]) -> int:
        return walk(lambda i: target(draft.tokens[:i]), draft, lambda i: numbers[i], lambda i: 0.5).num_accepted

    law: Law = {}
    with mock.patch("mtplx.engine.acceptance.draw", catch):
        passing = [_threshold(num_accepted, position, len(draft)) for position in range(len(draft))]
        for passes in itertools.product((True, False), repeat=len(draft)):
            chance = math.prod(p if passed else 1.0 - p for p, passed in zip(passing, passes, strict=True))
            if chance == 0.0:
                continue
            kept = draft.tokens[: num_accepted([0.0 if passed else ALMOST_ONE for passed in passes])]
            for token in np.flatnonzero(drawn_from[-1]):
                run = (*kept, int(token))
                law[run] = law.get(run, 0.0) + chance * float(drawn_from[-1][token])
    return law


def output_law(walk: Walk, target: Model, drafter: Model, depth: int, *, as_one_hot: bool = False) -> Law:
    """The law of the next depth + 1 tokens: a round, then plain decoding to the full length."""
    vocabulary = range(len(target(())))
    law = dict.fromkeys(itertools.product(vocabulary, repeat=depth + 1), 0.0)
    for draft, drawn in drafts(drafter, depth, as_one_hot=as_one_hot):
        for run, probability in run_law(walk, target, draft).items():
            for rest in itertools.product(vocabulary, repeat=depth + 1 - len(run)):
                law[run + rest] += drawn * probability * plain_probability(target, run + rest, start=len(run))
    return law


def mean_accepted(walk: Walk, target: Model, drafter: Model, depth: int) -> float:
    """How many draft tokens are accepted in expectation."""
    return sum(
        drawn * probability * (len(run) - 1)
        for draft, drawn in drafts(drafter, depth)
        for run, probability in run_law(walk, target, draft).items()
    )


def drafts(drafter: Model, depth: int, *, as_one_hot: bool = False) -> Sequence[tuple[Draft, float]]:
    """Every draft of `depth` tokens that can be drawn, with its probability."""
    possible: list[tuple[Draft, float]] = [(Draft((), []), 1.0)]
    for _ in range(depth):
        possible = [
            (Draft((*draft.tokens, int(token)), [*(draft.distributions or ()), q]), drawn * float(q[token]))
            for draft, drawn in possible
            for q in [drafter(draft.tokens)]
            for token in np.flatnonzero(q)
        ]
    return [(Draft(draft.tokens), drawn) for draft, drawn in possible] if as_one_hot else possible


def plain_probability(target: Model, tokens: tuple[int, ...], start: int = 0) -> float:
    """Of `tokens` from `start` on, by plain decoding."""
    probability = 1.0
    for i in range(start, len(tokens)):
        probability *= float(target(tokens[:i])[tokens[i]])
        if probability == 0.0:  # what comes after has no meaning
            break
    return probability


def largest_error(law: Law, target: Model) -> float:
    """How far a probability of `law` is from that of plain decoding."""
    return max(abs(probability - plain_probability(target, tokens)) for tokens, probability in law.items())


def _threshold(num_accepted: Callable[[Sequence[float]], int], position: int, depth: int) -> float:
    """The measure of the numbers in [0, 1) that accept at `position`: those below some point.

    Tried where all positions before accept and none after does, where every rule shows what it does at this one.
    """

    def accepts(number: float) -> bool:
        return num_accepted([0.0] * position + [number] + [ALMOST_ONE] * (depth - position - 1)) > position

    if not accepts(0.0):
        return 0.0
    if accepts(ALMOST_ONE):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(36):
        middle = (low + high) / 2
        low, high = (middle, high) if accepts(middle) else (low, middle)
    return low


def gumbel(noise: Noise) -> Noise:
    """Standard Gumbel numbers by uniform ones: argmax(log p + g) has the law p."""
    return -np.log(-np.log(np.maximum(noise, 2.0**-54)))
