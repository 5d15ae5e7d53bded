"""Matchers of llguidance, and how much it may do for one at the start and at each token."""

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

_LIMITS = LLParserLimits(max_lexer_states=20_000, verbose_errors=False)


def new_matcher(vocabulary: LLTokenizer, source: str) -> LLMatcher:
    """A matcher of a grammar in llguidance's own form, at the start of a text, where it knows what may come.

    It `is_error()` if nothing may, or if the grammar is wrong or too large.
    """
    matcher = LLMatcher(vocabulary, source, log_level=0, limits=_LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()
    return matcher
