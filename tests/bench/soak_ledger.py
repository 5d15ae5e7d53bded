"""What clients saw of their requests, and whether a server's counters can be true then. Pure.

Of a request whose client left, the counters may tell anything from what the client saw to all that was asked for. With
no such request, every counter must be exact.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

Counters: TypeAlias = Mapping[str, float]

_NAMESPACE = "mtplx:"
_REASONS = ("stop", "length", "abort", "error")
_PER_REQUEST = (
    *("e2e_request_latency_seconds_count", "request_queue_time_seconds_count"),
    *("request_prompt_tokens_count", "request_generation_tokens_count"),
)


@dataclass(frozen=True)
class Drafts:
    """How often was drafted for a request, and how many tokens."""

    num_drafts: int = 0
    num_drafted: int = 0
    num_accepted: int = 0


@dataclass(frozen=True)
class Seen:
    """What a client saw of its request number `request`. `reason` is None if it left before the end.

    `taken` says that the reply had begun; `num_output` is exact at the end and what is certain before. `most_output` is
    what was asked for.
    """

    request: int
    reason: str | None
    taken: bool
    text: str
    num_output: int
    most_output: int
    drafts: Drafts = Drafts()


@dataclass(frozen=True)
class _Range:
    low: float = 0
    high: float = 0

    def __add__(self, other: "_Range") -> "_Range":
        return _Range(self.low + other.low, self.high + other.high)


def read_counters(exposition: str) -> Counters:
    """The sum of each metric over its labels, without the namespace; requests also by their reason."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            name = sample.name.removeprefix(_NAMESPACE)
            if "finished_reason" in sample.labels:
                sums[sample.labels["finished_reason"]] = sample.value
            sums[name] = sums.get(name, 0) + sample.value
    return sums


def difference(before: Counters, after: Counters) -> Counters:
    return {name: value - before.get(name, 0) for name, value in after.items()}


def discrepancies(counted: Counters, seen: Sequence[Seen], prompt_tokens: Mapping[int, int]) -> list[str]:
    """What cannot be true in the counters, given what was seen and how many prompt tokens each request has."""
    ranges = {name: _total(name, seen, prompt_tokens) for name in _BOUNDS}
    wrong = [
        f"{name} counted {counted[name]:g}, seen {bounds.low:g} to {bounds.high:g}"
        for name, bounds in ranges.items()
        if not bounds.low <= counted[name] <= bounds.high
    ]
    equal = {
        **dict.fromkeys(_PER_REQUEST, "request_success_total"),
        "request_generation_tokens_sum": "generation_tokens_total",
        "spec_decode_num_accepted_tokens_per_pos_total": "spec_decode_num_accepted_tokens_total",
    }
    wrong += [
        f"{name} counted {counted[name]:g}, but {other} {counted[other]:g}"
        for name, other in equal.items()
        if counted[name] != counted[other]
    ]
    return wrong


def _total(name: str, seen: Sequence[Seen], prompt_tokens: Mapping[int, int]) -> _Range:
    bounds = _BOUNDS[name]
    return sum((bounds(each, prompt_tokens[each.request]) for each in seen), _Range())


def _ended(reason: str, each: Seen) -> _Range:
    if each.reason is not None:
        return _exactly(each.reason == reason)
    return _Range(0, reason != "error")


def _exactly(value: float) -> _Range:
    return _Range(value, value)


def _certain(is_certain: bool, value: float) -> _Range:
    return _Range(value if is_certain else 0, value)


def _drafting(each: Seen, value: int) -> _Range:
    return _exactly(value) if each.reason is not None else _Range(0, math.inf)


_BOUNDS = {
    **{reason: (lambda each, _, reason=reason: _ended(reason, each)) for reason in _REASONS},
    "request_success_total": lambda each, _: _certain(each.taken, 1),
    "request_prompt_tokens_sum": lambda each, num_prompt: _certain(each.taken, num_prompt),
    "prompt_tokens_total": lambda each, num_prompt: _certain(each.num_output > 0, num_prompt),
    "time_to_first_token_seconds_count": lambda each, _: _certain(each.num_output > 0, 1),
    "generation_tokens_total": lambda each, _: _Range(
        each.num_output, each.num_output if each.reason is not None else each.most_output
    ),
    "spec_decode_num_drafts_total": lambda each, _: _drafting(each, each.drafts.num_drafts),
    "spec_decode_num_draft_tokens_total": lambda each, _: _drafting(each, each.drafts.num_drafted),
    "spec_decode_num_accepted_tokens_total": lambda each, _: _drafting(each, each.drafts.num_accepted),
    "spec_decode_num_failed_drafts_total": lambda each, _: _Range(),
}
