"""How fast prompts come in beside texts under way: by what steps took, so that the texts are not kept waiting.

A step with rows of prompts takes at most `_PATIENCE` times what it would take without. Where that leaves no room, since
each row of a long prompt looks back on all of it, prompts come in by whole chunks instead, in one step of `_SELDOM`:
then few gaps between tokens are long, rather than all. Knows seconds and rows; knows no clock and no sequence.
"""

_PATIENCE = 1.5
_SELDOM = 40
_FEWEST = 2  # rows that are worth looking back for
_NEW = 0.3  # weight of the latest step in an average
_SLOWER = 0.03  # the same of a step without prompts that took longer: reading a prompt, too, slows those before it


class PromptPace:
    """Told what steps took, it says how many rows of prompts the next one may take."""

    def __init__(self) -> None:
        self._plain_s: dict[int, float] = {}  # of a step without prompts, by the number of texts under way
        self._num_texts = 0
        self._row_s: float | None = None  # that a row adds to a step, of few rows of the latest prompts
        self._steps_since = 0  # the last step with prompts
        self._is_seldom = False

    def begin(self) -> None:
        """Another prompt comes in, which has little to look back on yet."""
        self._row_s, self._is_seldom = None, False

    def rows(self, num_texts: int, most: int) -> int:
        """How many rows of prompts may join that many texts under way: 0 to `most`."""
        if num_texts != self._num_texts:
            self._num_texts, self._is_seldom = num_texts, False
        plain_s = self._plain(num_texts)
        if plain_s is None:
            return 0  # the step that comes of it tells
        if self._row_s is None:
            return min(most, num_texts)
        affordable = int((_PATIENCE - 1.0) * plain_s / self._row_s)
        self._is_seldom = self._is_seldom or affordable < min(_FEWEST, most)
        if self._is_seldom:
            return most if self._steps_since >= _SELDOM else 0
        return min(affordable, most)

    def observe(self, num_texts: int, num_prompt_rows: int, seconds: float) -> None:
        """A step of that many texts, and rows of prompts, took this long."""
        self._steps_since = 0 if num_prompt_rows else self._steps_since + 1
        if not num_texts:
            return
        if not num_prompt_rows:
            known = self._plain_s.get(num_texts, seconds)
            self._plain_s[num_texts] = known + (_SLOWER if seconds > known else _NEW) * (seconds - known)
            return
        plain_s = self._plain(num_texts)
        if plain_s is not None and not self._is_seldom:
            row_s = max(seconds - plain_s, 0.05 * plain_s) / num_prompt_rows
            self._row_s = row_s if self._row_s is None else self._row_s + _NEW * (row_s - self._row_s)

    def _plain(self, num_texts: int) -> float | None:
        """What a step of that many texts takes without prompts, or one of the nearest number that is known."""
        if not self._plain_s:
            return None
        return self._plain_s[min(self._plain_s, key=lambda known: abs(known - num_texts))]
