"""Whatever the engine chooses, the text stays: depth and drafter "auto" against plain decoding, on tiny models."""

import pytest

from mtplx import EngineSession, GenerationConfig
from mtplx.engine.drafters.model import ModelDrafter
from mtplx.engine.drafters.ngram import NgramDrafter
from mtplx.engine.speculative import Speculator
from mtplx.engine.types import AUTO, Request, SamplingParams
from tests.engine.decoding import begin, decode, decode_together, step
from tests.fakes import ByteTokenizer, TabularTarget
from tests.tiny_models import tiny_model_folder

GREEDY = SamplingParams(temperature=0.0)


def speculator() -> Speculator:
    drafters = {"ngram": NgramDrafter(), "small": ModelDrafter("small", TabularTarget(seed=9))}
    return Speculator(TabularTarget(seed=4, sharpness=3.0), drafters, ByteTokenizer())


def planned(params: SamplingParams, name: str = "r", **options: object) -> Request:
    return Request(name, (1, 2, 3, 1, 2), 200, params, (), 16, AUTO, auto_depth=True, **options)


def plain(params: SamplingParams, **options: object) -> Request:
    return Request("plain", (1, 2, 3, 1, 2), 200, params, **options)


@pytest.mark.parametrize("architecture", ["llama", "mamba2"])
def test_greedy_text_is_plain_decodings(architecture: str, tmp_path: object) -> None:
    folder = str(tiny_model_folder(tmp_path, architecture))
    drafted, texts = 0, set()
    for options in ({"speculative_depth": 0}, {}, {"drafter": "self"}, {"speculative_depth": 3}):
        with EngineSession(GenerationConfig(folder, max_tokens=80, **options)) as session:
            texts.add("".join(session.generate("in the end and the end and the")))
            drafted += session.stats.num_drafted
    assert len(texts) == 1
    assert drafted > 0


def test_what_is_proposed_beyond_the_plan_is_not_verified() -> None:
    rounds = speculator()
    sequence = begin(rounds, planned(GREEDY))
    records = []
    while sequence.reason is None:
        records.append(step(rounds, sequence).record)
    assert all(record.num_drafted <= record.depth for record in records)
    assert any(record.depth < 16 and record.num_drafted for record in records)
    assert sequence.tokens[5:] == decode(rounds, plain(GREEDY))[0]


def test_a_seed_has_one_text_under_the_coupled_rule() -> None:
    params = SamplingParams(seed=3)
    expected, _ = decode(speculator(), plain(params, acceptance="coupled"))
    rounds = speculator()
    for _ in range(3):
        assert decode(rounds, planned(params, acceptance="coupled"))[0] == expected


def test_sequences_that_share_a_forward_are_planned_each_for_itself() -> None:
    requests = [planned(GREEDY, "a"), planned(SamplingParams(seed=1), "b", acceptance="coupled"), plain(GREEDY)]
    alone = [decode(speculator(), request)[0] for request in requests]
    assert decode_together(speculator(), requests) == alone


def test_a_drafter_that_fails_to_say_how_confident_it_is_costs_its_draft_and_is_counted() -> None:
    class Shy(NgramDrafter):
        def confidence(self, sequence: object) -> int:
            raise RuntimeError("no comment")

    rounds = Speculator(TabularTarget(seed=4), {"ngram": Shy()}, ByteTokenizer())
    tokens, _ = decode(rounds, planned(GREEDY))
    assert tokens == decode(rounds, plain(GREEDY))[0]
    [draft] = rounds.draft([rounds.begin(planned(GREEDY))])
    assert (draft.failed, draft.drafter, len(draft)) == (True, "ngram", 0)
