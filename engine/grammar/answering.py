"""A grammar that holds for the answer alone: what the model thinks before it is free. Knows tokens only."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from mtplx.engine.types import Grammar


@dataclass(frozen=True)
class ThoughtMarks:
    """The tokens that a thought begins and ends with."""

    start: tuple[int, ...]
    end: tuple[int, ...]
    eos_token_ids: frozenset[int]


@dataclass(frozen=True)
class AnswerGrammar:
    """A Grammar that is that of `answer`, but for a thought before it: at the `start` of the text one may begin, and
    `within` it everything may come but the end of the text. `num_ended` tokens of its end mark came last.

    Whether one begins is seen by a single token, as most models' marks are; those that take several begin none.
    """

    answer: Grammar
    marks: ThoughtMarks
    place: Literal["start", "within", "answer"]
    num_ended: int = 0

    def allowed(self) -> npt.NDArray[np.bool_]:
        allowed = self.answer.allowed()
        if self.place == "answer" or (self.place == "start" and len(self.marks.start) > 1):
            return allowed
        if self.place == "start":
            allowed = allowed.copy()
            allowed[self.marks.start[0]] = True
            return allowed
        everything = np.ones_like(allowed)
        everything[list(self.marks.eos_token_ids)] = False
        return everything

    def forced(self) -> tuple[int, ...]:
        return self.answer.forced() if self.place == "answer" else ()

    def after(self, token: int) -> Self:
        if self.place == "within":
            return self._after_thought(token)
        if self.place == "start" and (token,) == self.marks.start:
            return replace(self, place="within")
        return replace(self, place="answer", answer=self.answer.after(token))

    def _after_thought(self, token: int) -> Self:
        # A mark never begins with what it goes on with, so that a false start is at most its first token.
        for num_ended in (self.num_ended, 0):
            if token == self.marks.end[num_ended]:
                is_over = num_ended + 1 == len(self.marks.end)
                return replace(self, place="answer" if is_over else "within", num_ended=num_ended + 1)
        return replace(self, num_ended=0)
