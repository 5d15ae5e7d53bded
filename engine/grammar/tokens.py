"""What a tokenizer tells of its tokens to those who compile grammars over them."""

from collections.abc import Callable, Sequence

from mtplx.engine.grammar.vocabulary import TokenTable, longest_first
from mtplx.engine.text.tokenizer import Tokenizer

_LINE_BREAK = "\n"


def token_table(tokenizer: Tokenizer, vocab_size: int) -> TokenTable:
    """`vocab_size` is that of the model's logits."""
    known = {token: text for token, text in tokenizer.vocabulary().items() if token < vocab_size}
    tokens = [tokenizer.bytes_of(token) if token in known else b"" for token in range(vocab_size)]
    # A token that ends the text is none of its letters, even if the tokenizer shows it.
    special = [token for token in known if not tokens[token] or token in tokenizer.eos_token_ids]
    for token in special:
        tokens[token] = known[token].encode()
    return TokenTable(tokens, special, sorted(token for token in tokenizer.eos_token_ids if token < vocab_size))


def usual_cut(tokenizer: Tokenizer, table: TokenTable) -> Callable[[str], Sequence[int]]:
    """How the tokenizer cuts a text that has other text in front of it, so that no space is put there.

    A text that it would change, or read special tokens in, is cut into the longest tokens of the table instead.
    """
    cut_longest_first = longest_first(table)

    def cut(text: str) -> Sequence[int]:
        spelled = text.encode()
        for before in ("", _LINE_BREAK):
            tokens = tokenizer.encode(before + text, add_special_tokens=False)
            surplus = sum(len(tokenizer.bytes_of(token)) for token in tokens) - len(spelled)
            while tokens and surplus > 0:
                surplus -= len(tokenizer.bytes_of(tokens[0]))
                tokens = tokens[1:]
            if b"".join(map(tokenizer.bytes_of, tokens)) == spelled:
                return tokens
        return cut_longest_first(text)

    return cut
