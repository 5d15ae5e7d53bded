"""Matchers of llguidance, and how much it may do for one at the start and at each token."""

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

# Grammars that mean well need a tenth of it; of ambiguous ones, that much takes tenths of a second a token.
_LIMITS = LLParserLimits(max_lexer_states=20_000, max_items_in_row=1_000, step_max_items=15_000, verbose_errors=False)


def new_matcher(vocabulary: LLTokenizer, source: str) -> LLMatcher:
    """A matcher of a grammar in llguidance's own form, at the start of a text, where it knows what may come.

    It `is_error()` if nothing may, if the grammar is wrong or too large, or if drafts could not be taken back from it.
    """
    matcher = LLMatcher(vocabulary, source, log_level=0, limits=_LIMITS)
    if matcher.is_error():
        return matcher
    allowed = int.from_bytes(matcher.compute_bitmask(), "little")
    if not allowed:
        return matcher
    ahead = matcher.deep_copy()
    ahead.consume_token((allowed & -allowed).bit_length() - 1)
    ahead.rollback(1)
    return ahead if ahead.is_error() else matcher
