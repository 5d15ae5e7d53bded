"""From what a request asks its output to keep to, to a Grammar over a model's tokens.

Knows how much of a grammar is too much: hostile ones are refused here, or end their own request when the text gets to
where they are too complex.
"""

import threading
from functools import cached_property

from llguidance import LLTokenizer

from mtplx.engine.errors import InvalidRequestError
from mtplx.engine.grammar.checking import Checker
from mtplx.engine.grammar.matchers import new_matcher
from mtplx.engine.grammar.matching import MatchedGrammar, Rules
from mtplx.engine.grammar.spec import GrammarSpec
from mtplx.engine.grammar.tokens import token_table, usual_cut
from mtplx.engine.grammar.vocabulary import grammar_vocabulary
from mtplx.engine.text.tokenizer import Tokenizer

MAX_CHARACTERS = 200_000
MAX_CHOICES = 10_000

_LONGEST_REASON = 400  # characters: reasons repeat what they are about
_REMEDIES = {
    "json_object": "",
    "json_schema": "leave out or rewrite what is not supported",
    "regex": "use Rust's syntax, without look-around and back-references",
    "choice": "give other texts",
    "grammar": "use Lark's notation, with a rule named start, or GBNF's, with one named root",
    "tool_calls": "leave out or rewrite what is not supported of the tools' parameters",
}


class GrammarCompiler:
    """Compiles for one model. Any thread may do so; it mostly takes milliseconds, and a few seconds at most."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, *, timeout_s: float = 3.0) -> None:
        """`vocab_size` is that of the model's logits; a grammar that takes longer than `timeout_s` is refused."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._timeout_s = timeout_s
        self._lock = threading.Lock()

    def compile(self, spec: GrammarSpec) -> MatchedGrammar:
        """The grammar at the start of a text. Raises InvalidRequestError, which says what is wrong with the spec."""
        _check_size(spec)
        with self._lock:
            vocabulary, checker = self._vocabulary
        try:
            source = checker.source(spec)
        except InvalidRequestError as error:
            raise _invalid(spec, str(error)) from None
        matcher = new_matcher(vocabulary, source)
        return MatchedGrammar(Rules(matcher, self._vocab_size, tuple(vocabulary.eos_tokens), spec.field))

    @cached_property
    def _vocabulary(self) -> tuple[LLTokenizer, Checker]:
        table = token_table(self._tokenizer, self._vocab_size)
        return grammar_vocabulary(table, usual_cut(self._tokenizer, table)), Checker(table, self._timeout_s)


def _check_size(spec: GrammarSpec) -> None:
    num_characters = len(spec.value) if isinstance(spec.value, str) else sum(map(len, spec.value))
    if num_characters > MAX_CHARACTERS:
        raise InvalidRequestError(
            f"the {_named(spec)} has {num_characters} characters, of which at most {MAX_CHARACTERS} are allowed; "
            "make it smaller",
            field=spec.field,
        )
    if isinstance(spec.value, tuple) and not 0 < len(spec.value) <= MAX_CHOICES:
        raise InvalidRequestError(
            f"there are {len(spec.value)} choices; give from 1 to {MAX_CHOICES}", field=spec.field
        )


def _invalid(spec: GrammarSpec, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the {_named(spec)} cannot be kept to: {reason.strip()[:_LONGEST_REASON]}; {_REMEDIES[spec.kind]}",
        field=spec.field,
    )


def _named(spec: GrammarSpec) -> str:
    return spec.kind.replace("_", " ").replace("json", "JSON").replace("regex", "regular expression")
