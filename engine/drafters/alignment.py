"""Where in a predicted text the output is. Knows tokens only.

Unlike a suffix match, an alignment goes forward: of the places that look like the end of the output, the next one
after the place last trusted counts. Words that a prediction repeats (the keys of its records, say) can't throw it.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

TRUSTED = 8  # tokens in agreement after which a place is hardly ever wrong
_MAX_AGREEMENT = 16
_MAX_PLACES = 16  # with the agreement compared, a bound on the work of one search


class Alignment:
    """Follows an output through `prediction`, from the start of both.

    `agreement` counts the tokens that agreed up to here. Where the output deviates, it is searched for by its last
    two tokens; as long as they are nowhere, one token is taken to have been replaced (agreement 0), and where the next
    isn't as predicted either, nothing is.
    """

    def __init__(self, prediction: Sequence[int]) -> None:
        self.agreement = TRUSTED
        self._prediction = prediction
        self._position = 0  # of the token that comes next; nowhere is at the end
        self._trusted = 0  # the position up to which the output was followed
        self._output: list[int] = []
        self._places: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)  # where each pair ends, exclusive
        for end in range(2, len(prediction) + 1):
            self._places[tuple(prediction[end - 2 : end])].append(end)

    def following(self, depth: int) -> tuple[int, ...]:
        """Up to `depth` tokens of the prediction that come next; () where the output is not in it, or past it."""
        return tuple(self._prediction[self._position : self._position + depth])

    def append(self, token: int) -> None:
        """`token` is the next of the output."""
        self._output.append(token)
        if self.following(1) == (token,):
            self._position += 1
            self.agreement += 1
            if self.agreement >= TRUSTED:
                self._trusted = self._position
        else:
            self._search()

    def _search(self) -> None:
        places = self._nearest_places(self._places.get(tuple(self._output[-2:]), []))
        if places:
            self._position = max(places, key=self._agreement)  # the first of equals
            self.agreement = self._agreement(self._position)
        else:
            deviates_here = self._position == self._trusted
            self._position = self._trusted + 1 if deviates_here else len(self._prediction)
            self.agreement = 0

    def _nearest_places(self, places: list[int]) -> list[int]:
        """Some of the sorted `places`, the nearest after the trusted one first, then those before it."""
        first_after = bisect_left(places, self._trusted)
        after = places[first_after : first_after + _MAX_PLACES]
        num_before = min(first_after, _MAX_PLACES - len(after))
        return after + places[first_after - num_before : first_after]

    def _agreement(self, end: int) -> int:
        """How many tokens before `end` are the last ones of the output."""
        length = 0
        for predicted, token in zip(
            reversed(self._prediction[max(0, end - _MAX_AGREEMENT) : end]), reversed(self._output), strict=False
        ):
            if predicted != token:
                break
            length += 1
        return length


def num_foreseen(prediction: Sequence[int], output: Sequence[int]) -> int:
    """How many tokens of `output` the prediction had at the place where they came; no more than it has tokens."""
    alignment, count = Alignment(prediction), 0
    for token in output:
        count += alignment.following(1) == (token,)
        alignment.append(token)
    return min(count, len(prediction))
