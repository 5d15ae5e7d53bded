"""With a grammar too, no draft changes what is said: compiled grammars, every drafter, rule and depth."""

import itertools
import json
from functools import cache

import pytest

from mtplx.engine.drafters.forced import ForcedDrafter
from mtplx.engine.drafters.model import ModelDrafter
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.grammar.compiler import GrammarCompiler
from mtplx.engine.grammar.spec import GrammarSpec
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import AUTO, FORCED, PLAIN, Acceptance, Request, SamplingParams
from tests.engine.decoding import RULES, Depth, decode, decode_together, speculating
from tests.engine.grammar.vocabularies import VOCAB_SIZE, byte_pairs
from tests.fakes import TabularTarget

TOKENIZER = byte_pairs()
SCHEMA = {
    "type": "object",
    "properties": {
        "the": {"enum": ["the end", "the hand", "and"]},
        "numbers": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 2},
    },
    "required": ["the", "numbers"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
GRAMMAR = GrammarCompiler(TOKENIZER, VOCAB_SIZE).compile(GrammarSpec("json_schema", json.dumps(SCHEMA)))
DRAFTERS = {
    FORCED: ForcedDrafter(),
    "ngram": NgramDrafter(),
    "model": ModelDrafter("model", TabularTarget(VOCAB_SIZE, seed=2)),
}
SPECULATOR = Speculator(TabularTarget(VOCAB_SIZE, seed=1), DRAFTERS, TOKENIZER)
PROMPT = tuple(TOKENIZER.encode('{"the":"the end","numbers":[1,2]}\n'))


def request(temperature: float, seed: int) -> Request:
    return Request(f"{seed}", PROMPT, 200, SamplingParams(temperature, seed=seed), grammar=GRAMMAR)


@cache
def plain_text(temperature: float, rule: Acceptance) -> list[int]:
    return decode(SPECULATOR, speculating(request(temperature, seed=5), PLAIN, 0, rule))[0]


@pytest.mark.parametrize(("drafter", "depth"), [*itertools.product(DRAFTERS, (1, 3, 8)), (AUTO, "auto")])
@pytest.mark.parametrize("rule", RULES)
def test_the_text_is_that_of_plain_decoding_and_of_the_schema(rule: Acceptance, depth: Depth, drafter: str) -> None:
    for temperature in (0.0, 1.0) if rule == "coupled" else (0.0,):
        tokens, sequence = decode(SPECULATOR, speculating(request(temperature, seed=5), drafter, depth, rule))
        assert tokens == plain_text(temperature, rule)
        assert sequence.reason == "stop"
        assert set(json.loads(TOKENIZER.decode(tokens))) == {"the", "numbers"}


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_sampled_texts_are_of_the_schema(rule: Acceptance) -> None:
    texts = set()
    for seed in range(4):
        tokens, sequence = decode(SPECULATOR, speculating(request(1.0, seed), "model", 3, rule))
        assert sequence.speculation.num_accepted > 0
        texts.add(TOKENIZER.decode(tokens))
    assert len(texts) > 2
    assert all(json.loads(text)["the"] in SCHEMA["properties"]["the"]["enum"] for text in texts)


def test_texts_of_one_grammar_that_are_written_together_are_those_written_alone() -> None:
    requests = [speculating(request(1.0, seed), "ngram", 3, "coupled") for seed in range(4)]
    alone = [decode(SPECULATOR, each)[0] for each in requests]
    assert decode_together(SPECULATOR, requests) == alone
    assert len({tuple(tokens) for tokens in alone}) == 4
