"""Which tokens a compiled grammar lets follow a text. Knows llguidance's matcher; compiles nothing.

A matcher has one place in one text and moves; what it has learnt of its lexer stays with it. Values of the engine's
`Grammar` are made of it by moving it from where it was asked last to where it is asked: back to where both texts part,
and on from there. The texts that rounds ask about part by a draft at most, so that a step costs microseconds however
long the text is. Not safe to use from several threads at once.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from mtplx.engine.errors import InvalidRequestError


@dataclass(frozen=True)
class Rules:
    """What all places of one grammar share. `start` is at its beginning and stays there."""

    start: LLMatcher
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    field: str | None


@dataclass(frozen=True, eq=False)
class _Text:
    """A text by its last token; `before` is None where it begins with that."""

    token: int
    before: "_Text | None"
    length: int


@dataclass(eq=False)
class _Cursor:
    """A matcher and the text it has read, as every beginning of it."""

    matcher: LLMatcher
    read: list[_Text] = field(default_factory=list)

    def move(self, text: _Text) -> LLMatcher:
        """The matcher, having read just this text."""
        unread: list[_Text] = []
        place: _Text | None = text
        while place is not None and (place.length > len(self.read) or self.read[place.length - 1] is not place):
            unread.append(place)
            place = place.before
        num_kept = 0 if place is None else place.length
        if num_kept < len(self.read):
            self.matcher.rollback(len(self.read) - num_kept)
            del self.read[num_kept:]
            # llguidance keeps its last mask over a rollback, and may take it for that of another place, unless it makes
            # one where both texts part.
            self.matcher.compute_bitmask()
        for each in reversed(unread):
            self.matcher.consume_token(each.token)
            self.read.append(each)
        return self.matcher


class MatchedGrammar:
    """A Grammar. Every text that begins where it does gets a matcher of its own.

    Where only one text can follow, only the usual tokens for it are allowed: those that are forced.
    """

    def __init__(
        self, rules: Rules, cursor: _Cursor | None = None, text: _Text | None = None, *, is_over: bool = False
    ) -> None:
        self._rules = rules
        self._cursor = cursor
        self._text = text
        self._is_over = is_over

    def allowed(self) -> npt.NDArray[np.bool_]:
        """As `Grammar.allowed`. Raises InvalidRequestError where the grammar takes too much to follow."""
        return self._allowed

    def forced(self) -> tuple[int, ...]:
        if self._is_over or self._matcher().is_stopped():
            eos = self._rules.eos_token_ids
            return eos if len(eos) == 1 else ()
        return tuple(self._matcher().compute_ff_tokens())

    def after(self, token: int) -> "MatchedGrammar":
        cursor = self._cursor or _Cursor(self._rules.start.deep_copy())
        if self._is_over or token in self._rules.eos_token_ids:  # which a matcher could not be moved back from
            return MatchedGrammar(self._rules, cursor, self._text, is_over=True)
        length = 1 if self._text is None else self._text.length + 1
        return MatchedGrammar(self._rules, cursor, _Text(token, self._text, length))

    @cached_property
    def _allowed(self) -> npt.NDArray[np.bool_]:
        if self._is_over:
            allowed = np.zeros(self._rules.vocab_size, dtype=np.bool_)
            allowed[list(self._rules.eos_token_ids)] = True
        else:
            matcher = self._matcher()
            bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
            self._check(matcher)
            allowed = np.unpackbits(bits, count=self._rules.vocab_size, bitorder="little").view(np.bool_)
        allowed.setflags(write=False)
        return allowed

    def _matcher(self) -> LLMatcher:
        if self._cursor is None or self._text is None:
            return self._rules.start
        matcher = self._cursor.move(self._text)
        self._check(matcher)
        return matcher

    def _check(self, matcher: LLMatcher) -> None:
        if matcher.is_error():
            raise InvalidRequestError(
                f"the output cannot go on by this grammar, which asks for nothing that can be written or takes too "
                f"much to follow; make it simpler: {matcher.get_error()}",
                field=self._rules.field,
            )
