"""The default model keeps to a schema, and says the same with drafts and without."""

import json

import pytest

from mtplx.engine.drafters.forced import ForcedDrafter
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.grammar.compiler import GrammarCompiler
from mtplx.engine.grammar.spec import GrammarSpec
from mtplx.engine.models.loading import load_model
from mtplx.engine.models.running import make_target
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import AUTO, FORCED, Request, SamplingParams
from mtplx.kernels.preparing import prepare_kernels, speed_up
from tests.engine.decoding import decode, speculating

pytestmark = pytest.mark.slow

SCHEMA = {
    "type": "object",
    "properties": {
        "capital_of_the_country": {"type": "string", "maxLength": 10},
        "number_of_inhabitants": {"type": "integer", "minimum": 1000, "maximum": 99_999_999},
        "continent_it_lies_on": {"enum": ["Africa", "America", "Asia", "Europe", "Oceania"]},
    },
    "required": ["capital_of_the_country", "number_of_inhabitants", "continent_it_lies_on"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}


def test_it_writes_json_by_a_schema_faster_and_the_same_with_drafts() -> None:
    loaded = load_model(None)
    speed_up(loaded.model, prepare_kernels())
    drafters = {FORCED: ForcedDrafter(), "ngram": NgramDrafter()}
    speculator = Speculator(make_target(loaded.model), drafters, loaded.tokenizer)
    compiler = GrammarCompiler(loaded.tokenizer, loaded.vocab_size)
    grammar = compiler.compile(GrammarSpec("json_schema", json.dumps(SCHEMA)))
    prompt = loaded.tokenizer.render_chat([{"role": "user", "content": "Tell me about France. Answer in JSON."}])
    for temperature in (0.0, 1.0):
        sampling = SamplingParams(temperature, seed=7)
        request = Request(
            "r", tuple(loaded.tokenizer.encode(prompt)), 100, sampling, acceptance="coupled", grammar=grammar
        )
        plain, sequence = decode(speculator, request)
        assert sequence.reason == "stop"
        answer = json.loads(loaded.tokenizer.decode(plain))
        assert set(answer) == set(SCHEMA["required"])
        assert len(answer["capital_of_the_country"]) <= 10
        assert 1000 <= answer["number_of_inhabitants"] <= 99_999_999
        assert answer["continent_it_lies_on"] in SCHEMA["properties"]["continent_it_lies_on"]["enum"]
        for drafter, depth in ((FORCED, 8), ("ngram", 3), (AUTO, "auto")):
            tokens, sequence = decode(speculator, speculating(request, drafter, depth, "coupled"))
            assert tokens == plain, (temperature, drafter)
            if drafter == FORCED:
                speculation = sequence.speculation
                assert speculation.acceptance_rate > 0.9
                assert len(tokens) > 1.5 * speculation.num_rounds
