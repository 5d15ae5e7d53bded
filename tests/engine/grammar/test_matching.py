"""A compiled grammar allows what the definition allows, wherever it is asked, and is a value."""

import random

import numpy as np
import pytest

from mtplx.engine.grammar.compiler import GrammarCompiler
from mtplx.engine.grammar.spec import GrammarKind, GrammarSpec
from mtplx.engine.grammar.tokens import token_table, usual_cut
from mtplx.engine.grammar.vocabulary import longest_first
from mtplx.engine.text.gguf_tokenizer import GgufTokenizer
from mtplx.engine.text.vocabulary import TokenType
from mtplx.engine.types import Grammar
from tests.engine.grammar.vocabularies import VOCAB_SIZE, byte_pairs, sentence_pieces
from tests.tiny_models import EOS, SPECIAL_TOKENS, token_texts

TOKENIZER = byte_pairs()
COMPILER = GrammarCompiler(TOKENIZER, VOCAB_SIZE)
SCHEMA = '{"type": "object", "properties": {"the": {"type": "integer"}, "and": {"enum": ["in", "her"]}}}'


def compiled(kind: GrammarKind, value: str | tuple[str, ...] = "") -> Grammar:
    return COMPILER.compile(GrammarSpec(kind, value))


def after(grammar: Grammar, tokens: list[int]) -> Grammar:
    for token in tokens:
        grammar = grammar.after(token)
    return grammar


def allowed(grammar: Grammar) -> set[int]:
    return set(np.flatnonzero(grammar.allowed()).tolist())


def random_tokens(grammar: Grammar, chooser: random.Random, length: int) -> list[int]:
    """Allowed tokens, up to the end of the text."""
    tokens: list[int] = []
    while len(tokens) < length and EOS not in tokens:
        tokens.append(chooser.choice(sorted(allowed(after(grammar, tokens)))))
    return tokens


@pytest.mark.parametrize("choices", [("the end", "then", "the"), ("naïve", "na", "🦜"), ("a\nb", 'a"\\b/', "a|b", "")])
def test_it_allows_what_choices_go_on_with_and_the_end_after_a_whole_one(choices: tuple[str, ...]) -> None:
    """And where it is certain what text follows, the usual token for it alone."""
    chooser = random.Random(1)
    for _ in range(20):
        grammar, text = compiled("choice", choices), b""
        while True:
            rest = [choice.encode().removeprefix(text) for choice in choices if choice.encode().startswith(text)]
            by_definition = {
                token
                for token in range(VOCAB_SIZE)
                if (spelled := TOKENIZER.bytes_of(token)) and any(each.startswith(spelled) for each in rest)
            }
            by_definition |= {EOS} if b"" in rest else set()
            if forced := grammar.forced():
                assert forced[0] in by_definition
                by_definition = {forced[0]}
            assert allowed(grammar) == by_definition
            token = chooser.choice(sorted(by_definition))
            grammar, text = grammar.after(token), text + TOKENIZER.bytes_of(token)
            if token == EOS:
                break


def test_neither_special_tokens_nor_rows_of_no_token_are_ever_allowed() -> None:
    grammar = compiled("regex", "(?s).*")
    special = set(range(len(SPECIAL_TOKENS))) - {EOS}
    assert grammar.allowed().shape == (VOCAB_SIZE,)
    assert special.isdisjoint(allowed(grammar))
    assert max(allowed(grammar)) == VOCAB_SIZE - 6


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_a_place_allows_the_same_however_one_has_come_there(kind: GrammarKind) -> None:
    """Asked in any order, along drafts that are given up again, several texts of one grammar at a time."""
    value = SCHEMA if kind == "json_schema" else ""
    chooser = random.Random(2)
    grammar = compiled(kind, value)
    places: list[tuple[list[int], Grammar]] = [([], grammar)]
    for _ in range(300):
        tokens, place = chooser.choice(places[-12:] + places[:3])
        if chooser.random() < 0.3:
            place.forced()
        fresh = after(compiled(kind, value), tokens)
        assert allowed(place) == allowed(fresh)
        assert place.forced() == fresh.forced()
        if EOS not in tokens:
            token = chooser.choice(sorted(allowed(place)))
            places.append(([*tokens, token], place.after(token)))
    assert any(EOS in tokens for tokens, _ in places)


def test_a_mask_of_a_draft_that_was_given_up_is_not_taken_for_that_of_another_text() -> None:
    """Of two strings that begin alike, one is a value and the other a name: what may end them differs."""
    tokenizer = byte_pairs(more=('",', '":'))
    ends_value, ends_name = len(token_texts()), len(token_texts()) + 1
    grammar = GrammarCompiler(tokenizer, VOCAB_SIZE).compile(GrammarSpec("json_object"))
    place = after(grammar, tokenizer.encode('{"the":'))
    draft, text = (after(place, tokenizer.encode(rest)) for rest in (' "the', '{"the'))
    assert {ends_value, ends_name} & allowed(draft) == {ends_value}
    assert {ends_value, ends_name} & allowed(text) == {ends_name}


def test_what_is_forced_is_allowed_and_spells_what_the_text_must_be() -> None:
    grammar = compiled("regex", "the hand(ing)?")
    forced = grammar.forced()
    assert b"".join(map(TOKENIZER.bytes_of, forced)) == b"the hand"
    assert all(token in allowed(after(grammar, list(forced[:place]))) for place, token in enumerate(forced))
    assert compiled("regex", "a|b").forced() == ()


def test_of_a_long_text_that_must_follow_only_the_beginning_is_cut_into_tokens() -> None:
    """It would be cut anew at each of its tokens."""
    grammar = compiled("choice", ("the hand " * 5000,))
    for _ in range(3):
        forced = grammar.forced()
        assert b"".join(map(TOKENIZER.bytes_of, forced)) in b"the hand " * 5000
        assert 100 < len(forced) <= 512
        assert allowed(grammar) == {forced[0]}
        grammar = grammar.after(forced[0])


def test_a_token_that_ends_the_text_is_no_text_even_if_the_tokenizer_shows_it() -> None:
    tokenizer = byte_pairs(special=TokenType.USER_DEFINED)
    assert tokenizer.bytes_of(EOS) == SPECIAL_TOKENS[EOS].encode()
    grammar = GrammarCompiler(tokenizer, VOCAB_SIZE).compile(GrammarSpec("regex", "(?s).{3,}"))
    assert EOS not in allowed(grammar)
    assert EOS in allowed(after(grammar, tokenizer.encode("abc")))


def test_at_the_end_the_end_is_forced_and_nothing_else_allowed_ever_after() -> None:
    grammar = after(compiled("regex", "ab"), TOKENIZER.encode("ab"))
    for _ in range(3):
        assert allowed(grammar) == {EOS}
        assert grammar.forced() == (EOS,)
        grammar = grammar.after(EOS)


def test_where_text_may_end_the_end_is_allowed_beside_other_tokens() -> None:
    grammar = after(compiled("regex", "ab?"), TOKENIZER.encode("a"))
    assert allowed(grammar) == {EOS, *TOKENIZER.encode("b")}
    assert grammar.forced() == ()


@pytest.mark.parametrize("tokenizer", [byte_pairs(), sentence_pieces()], ids=["byte pairs", "sentence pieces"])
@pytest.mark.parametrize("text", ["the 7", " the 7", "77"])
def test_forced_tokens_are_those_of_the_text_in_the_middle_of_another(tokenizer: GgufTokenizer, text: str) -> None:
    grammar = GrammarCompiler(tokenizer, VOCAB_SIZE).compile(GrammarSpec("regex", f"<{text}!>[ab]"))
    spelled = b""
    while forced := grammar.forced():
        spelled += b"".join(map(tokenizer.bytes_of, forced))
        grammar = after(grammar, list(forced))
    assert spelled == f"<{text}!>".encode()


def test_text_is_cut_as_the_tokenizer_cuts_it_after_other_text_or_into_the_longest_tokens_if_it_is_changed() -> None:
    tokenizer = sentence_pieces()
    table = token_table(tokenizer, VOCAB_SIZE + 10)
    cut = usual_cut(tokenizer, table)
    _, _, *usual = tokenizer.encode("\nhthe")
    assert cut("hthe") == usual != longest_first(table)("hthe")
    assert cut("</s>the") == longest_first(table)("</s>the")
    assert b"".join(map(tokenizer.bytes_of, cut("</s>the"))) == b"</s>the"


def test_masks_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        compiled("json_object").allowed()[0] = True
