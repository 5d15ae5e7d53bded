"""What rounds cost on this machine, learnt from real ones while times waver. Knows seconds; knows no clock.

A time says little alone: the text grows, and a neighbour on the processor may double it. So every time is divided by
how slow the machine was just then, which is what the rounds before and after took against their usual cost; what
remains is compared and averaged. Medians over short windows make the rest robust.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise

from mtplx.engine.types import HEAD

_WINDOW = 15  # times remembered for each size
_BESIDE = 3  # rounds before one, and as many after it, that tell how slow the machine was
_MEASURED = 3  # times that make a cost known
_MOST_EXCESS = 1.3  # how much a cost that is not known yet may exceed what is expected of it
_WELL_KNOWN = 8  # times that make it well known
_CURVE_ROUNDS = 4  # after which the curve is drawn anew, once times are well known
_STALE_ROUNDS = 128  # after which a cost may have changed
_YOUNG_ROUNDS = 16  # after which one that is not well known deserves another look
_ROW_GUESS = 0.1  # cost of one row more beside the first alone, until measured: too low rather than too high
_LEAST_STEP = 0.2  # the least part of that guess that a row more costs, whatever was measured of fewer rows
_DRAFT_GUESS = 0.25  # cost of drafting a token beside a round of one row, until measured
_HEAD_GUESS = 0.1  # the same for a head, which is a layer or so
_CATCH_UP_GUESS = 0.25  # cost of a row that a drafter catches up with beside drafting a token, until measured


class Costs:
    """Costs of rounds of one kind, in seconds of a machine as slow as when the first of them was measured.

    The first time of each size is left out: it may include compiling and allocating. Multiply by `slowness` for
    seconds of now.
    """

    def __init__(self) -> None:
        self._rows: dict[int, deque[float]] = {}
        self._measured: Mapping[int, float] = {}
        self._drafter_times: dict[tuple[str, str], deque[float]] = {}  # drafting and catching up
        self._drafter_costs: dict[tuple[str, str], float] = {}
        self._lately: deque[tuple[int, float]] = deque(maxlen=2 * _BESIDE + 1)  # rows and seconds
        self._last_seen: dict[int, int] = {}
        self._last_learnt: dict[int, int] = {}
        self._num_rounds = 0
        self._curve: Sequence[float] = ()
        self.slowness = 1.0

    def similar(self) -> "Costs":
        """Costs to start from for another kind."""
        return deepcopy(self)

    # ---- learning -----------------------------------------------------------------------------------------------

    def observe_round(self, num_rows: int, seconds: float) -> None:
        """A forward of `num_rows` rows and judging them took this long. Learnt from once the next few are known."""
        self._num_rounds += 1
        is_first = num_rows not in self._last_seen
        self._last_seen[num_rows] = self._num_rounds
        if is_first:
            return
        self._lately.append((num_rows, seconds))
        if len(self._lately) == self._lately.maxlen:
            rounds = list(self._lately)
            now_rows, now_s = rounds.pop(_BESIDE)
            slowness = self._slowness(rounds)
            times = self._rows.setdefault(now_rows, deque(maxlen=_WINDOW))
            if self._last_learnt.get(now_rows, 0) < self._num_rounds - _STALE_ROUNDS:
                while len(times) > _MEASURED:  # old times lose their say quickly
                    times.popleft()
            self._last_learnt[now_rows] = self._num_rounds
            times.append(now_s / slowness)
            if len(times) >= _MEASURED:
                self._measured = {**self._measured, now_rows: _middle(times)}  # replaced whole, for other threads
            if len(times) <= _WELL_KNOWN or self._num_rounds % _CURVE_ROUNDS == 0:
                self._curve = ()
        self.slowness = self._slowness(self._lately)

    def _slowness(self, rounds: Iterable[tuple[int, float]]) -> float:
        """How much longer rounds took than they usually do, those of sizes that have been measured."""
        measured = self._measured
        ratios = [seconds / measured[num_rows] for num_rows, seconds in rounds if num_rows in measured]
        return _middle(ratios) if ratios else self.slowness

    def observe_draft(self, drafter: str, num_tokens: int, seconds: float) -> None:
        """Drafting `num_tokens` tokens took this long."""
        self._observe(("draft", drafter), seconds / num_tokens)

    def observe_catch_up(self, drafter: str, num_rows: int, seconds: float) -> None:
        """A drafter that was `num_rows` rows behind caught up in this time."""
        self._observe(("catch up", drafter), seconds / num_rows)

    def _observe(self, work: tuple[str, str], seconds: float) -> None:
        if work in self._drafter_times:
            self._drafter_times[work].append(seconds / self.slowness)
            self._drafter_costs[work] = _middle(self._drafter_times[work])
        else:
            self._drafter_times[work] = deque(maxlen=_WINDOW)  # the first is left out

    # ---- telling ------------------------------------------------------------------------------------------------

    @property
    def measured(self) -> Mapping[int, float]:
        """The cost of each number of rows that has been measured."""
        return self._measured

    def rows(self, num_rows: int) -> float:
        """The cost of a round of that many rows, measured or not. Some number of rows has been measured."""
        return self.curve(num_rows)[num_rows - 1]

    def curve(self, most_rows: int) -> Sequence[float]:
        """The costs of 1 … `most_rows` rows, and perhaps more, or () if none has been measured."""
        if len(self._curve) < most_rows and self._rows:
            self._curve = cost_curve(self._known(), most_rows)
        return self._curve

    def measured_draft(self, drafter: str) -> float | None:
        """The cost of drafting one token if it has been measured. May be asked from any thread."""
        return self._drafter_costs.get(("draft", drafter))

    def _known(self) -> Mapping[int, float]:
        """The cost of each number of rows that was seen. A first time may be far too long, but hardly too short."""
        if not self._measured:
            return {rows: min(times) for rows, times in self._rows.items()}
        expected = cost_curve(self._measured, max(self._rows))
        return {
            rows: self._measured.get(rows) or min(*times, _MOST_EXCESS * expected[rows - 1])
            for rows, times in self._rows.items()
        }

    def draft(self, drafter: str) -> float:
        """The cost of drafting one token."""
        cost = self._drafter_costs.get(("draft", drafter))
        guess = _HEAD_GUESS if drafter == HEAD else _DRAFT_GUESS
        return guess * self.rows(1) if cost is None else cost

    def catch_up(self, drafter: str) -> float:
        """The cost of a row that the drafter must catch up with."""
        cost = self._drafter_costs.get(("catch up", drafter))
        return _CATCH_UP_GUESS * self.draft(drafter) if cost is None else cost

    def is_uncertain(self, num_rows: int) -> bool:
        """Whether it is time to see that many rows again: soon while little is known of them, later when much is."""
        num_known = len(self._rows.get(num_rows, ()))
        patience = _STALE_ROUNDS if num_known >= _WELL_KNOWN else _YOUNG_ROUNDS
        return self._num_rounds - self._last_seen.get(num_rows, -patience) >= patience


def cost_curve(known: Mapping[int, float], most_rows: int) -> list[float]:
    """Costs of 1 … `most_rows` rows from those known of some: straight between them, and never falling.

    Beyond the last known it goes on as steeply as it rose from the first known to there, or as a guess has it.
    """
    sizes = sorted(known)
    first, last = sizes[0], sizes[-1]
    guess = _ROW_GUESS * known[first] / (1 + _ROW_GUESS * (first - 1))
    curve = [known[first] - guess * (first - rows) for rows in range(1, first + 1)]
    for left, right in pairwise(sizes):
        start = curve[-1]
        rise = max(0.0, known[right] - start)
        curve += [start + rise * (rows - left) / (right - left) for rows in range(left + 1, right + 1)]
    step = guess if first == last else max(_LEAST_STEP * guess, (curve[-1] - known[first]) / (last - first))
    start = curve[-1]
    return curve + [start + step * more for more in range(1, most_rows - len(curve) + 1)]


def _middle(values: Sequence[float] | deque[float]) -> float:
    """The median."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
