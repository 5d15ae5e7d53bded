"""What is measured of a run, over a model that writes letters."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mtplx import EngineSession, GenerationConfig
from mtplx.engine import session as session_module
from mtplx.engine.errors import ContextLengthError
from mtplx.server.bench import measuring
from mtplx.server.bench.cells import make_cells
from mtplx.server.bench.measuring import Plan, encode_prompt, measure, measure_one
from mtplx.server.bench.prompts import Prompt
from tests.fakes import EOS
from tests.server.bench.runs import GREEDY, drafted
from tests.server.engines import CONTEXT_LENGTH, letter_model, letter_speculator

NUM_TOKENS = 60


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineSession]:
    monkeypatch.setattr(session_module, "load_model", lambda spec: letter_model())
    monkeypatch.setattr(session_module, "make_speculator", lambda *_, **__: letter_speculator())
    with EngineSession() as session:
        yield session


def prompt(text: str, name: str = "1") -> Prompt:
    return Prompt(name, "copy", ({"role": "user", "content": text},))


def plan(session: EngineSession, *texts: str, num_repeats: int = 1) -> Plan:
    prompts = [encode_prompt(session.model, prompt(text, text), NUM_TOKENS) for text in texts]
    return Plan(prompts, make_cells(["ngram"], [3, 5], [0.0]), NUM_TOKENS, num_repeats)


def test_a_prompt_is_a_user_message_in_the_models_template(session: EngineSession) -> None:
    encoded = encode_prompt(session.model, prompt("abc"), NUM_TOKENS)
    assert bytes(encoded.tokens).decode() == "<user>abc\n<assistant>"


def test_a_prompt_that_leaves_no_room_for_output_is_refused(session: EngineSession) -> None:
    fitting = "a" * (CONTEXT_LENGTH - NUM_TOKENS - len("<user>\n<assistant>"))
    encode_prompt(session.model, prompt(fitting), NUM_TOKENS)
    with pytest.raises(ContextLengthError, match="prompt 1 has"):
        encode_prompt(session.model, prompt(fitting + "a"), NUM_TOKENS)


def test_a_run_tells_what_its_rounds_did(session: EngineSession) -> None:
    every = plan(session, "abc")
    run = measure_one(session, every, every.prompts[0], drafted(3), 0)
    stats = session.stats
    assert len(run.tokens) == len(run.text) == NUM_TOKENS
    assert run.num_rounds == stats.num_rounds < NUM_TOKENS
    assert sum(run.drafted_at) == stats.num_drafted
    assert run.accepted_at == stats.accepted_per_position[: len(run.accepted_at)]
    assert 0 < run.prefill_s < run.first_token_s < run.prefill_s + run.decode_s


def test_decoding_takes_all_rounds_and_no_prefill(session: EngineSession, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([10.0, 11.0, 13.0, 17.0])  # at the start, after prefill, after the first round, at the end
    monkeypatch.setattr(measuring, "time", SimpleNamespace(perf_counter=lambda: next(readings)))
    every = plan(session, "abc")
    run = measure_one(session, every, every.prompts[0], GREEDY, 0)
    assert (run.prefill_s, run.first_token_s, run.decode_s) == (1.0, 3.0, 6.0)


def test_a_run_decodes_as_its_cell_says_and_to_the_full_length(
    session: EngineSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[GenerationConfig] = []
    begin = session.begin

    def spy(prompt: tuple[int, ...], config: GenerationConfig) -> None:
        configs.append(config)
        begin(prompt, config)

    monkeypatch.setattr(session, "begin", spy)
    every = replace(plan(session, "abc"), acceptance="block")
    measure_one(session, every, every.prompts[0], drafted(5, temperature=0.7), 2)
    [config] = configs
    assert (config.drafter, config.speculative_depth, config.temperature) == ("ngram", 5, 0.7)
    assert (config.acceptance, config.seed, config.max_tokens) == ("block", 2, NUM_TOKENS)
    assert config.logit_bias == {EOS: -100.0}


def test_every_repeat_of_every_prompt_has_a_run_in_every_cell_after_a_warm_up(session: EngineSession) -> None:
    every = plan(session, "abc", "def", num_repeats=3)
    told: list[None] = []
    groups = list(measure(session, every, lambda: told.append(None)))
    assert [(group[0].prompt, group[0].repeat) for group in groups] == [
        (text, repeat) for repeat in (0, 1, 2) for text in ("abc", "def")
    ]
    for group in groups:
        assert {run.cell for run in group} == set(every.cells)
        assert {(run.prompt, run.repeat, run.tokens) for run in group} == {
            (group[0].prompt, group[0].repeat, group[0].tokens)
        }
    assert len(told) == every.num_runs == 3 + 3 * 6


def test_cells_take_turns_in_going_first(session: EngineSession) -> None:
    groups = list(measure(session, plan(session, "abc", "def", "ghi"), lambda: None))
    assert {group[0].cell for group in groups} == {GREEDY, drafted(3), drafted(5)}
