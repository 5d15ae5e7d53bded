"""A model's tokens as the llguidance library needs them. Knows no tokenizer, for it is loaded without any."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llguidance import LLTokenizer, TokenizerWrapper

# Of a text that must follow, however long, all that a round could draft.
_MOST_CUT_CHARACTERS = 512


@dataclass(frozen=True)
class TokenTable:
    """The tokens that a model can give, by id: their bytes, or the names of the `special` ones.

    Those that stand for nothing have no bytes, and are never allowed.
    """

    tokens: list[bytes]
    special: list[int]
    eos: list[int]


def grammar_vocabulary(table: TokenTable, cut: Callable[[str], Sequence[int]]) -> LLTokenizer:
    """The table for llguidance; `cut` gives the usual tokens of a text in the middle of a longer one."""
    return LLTokenizer(TokenizerWrapper(_Tokens(table, cut)), eos_token=table.eos)


def longest_first(table: TokenTable) -> Callable[[str], Sequence[int]]:
    """A way to cut texts that needs no tokenizer: the longest token that fits, and so on."""
    special = set(table.special)
    ids = {spelled: token for token, spelled in enumerate(table.tokens) if token not in special and spelled}
    most = max(map(len, ids))

    def cut(text: str) -> Sequence[int]:
        rest, tokens = text.encode(), []
        while rest:
            fitting = (rest[:length] for length in range(most, 0, -1) if rest[:length] in ids)
            spelled = next(fitting, None)
            if spelled is None:  # a byte that no token stands for
                break
            tokens.append(ids[spelled])
            rest = rest[len(spelled) :]
        return tokens

    return cut


class _Tokens:
    """What TokenizerWrapper asks for, by the names it asks for it."""

    def __init__(self, table: TokenTable, cut: Callable[[str], Sequence[int]]) -> None:
        self.tokens = table.tokens
        self.special_token_ids = table.special
        self.eos_token_id = table.eos[0]
        self.bos_token_id = None
        self._cut = cut

    def __call__(self, text: bytes) -> Sequence[int]:
        return self._cut(text.decode()[:_MOST_CUT_CHARACTERS])
