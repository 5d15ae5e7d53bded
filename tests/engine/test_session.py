"""EngineSession: decoding without a server, whole and stage by stage."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mtplx import EngineSession, GenerationConfig
from mtplx.engine.errors import InvalidRequestError, ModelLoadError, StageOrderError
from tests.tiny_models import tiny_model_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model_folder(tmp_path_factory.mktemp("models"), "llama"))


@pytest.fixture
def session(model: str) -> Iterator[EngineSession]:
    with EngineSession(GenerationConfig(model, speculative_depth=3, drafter="self", max_tokens=20)) as session:
        yield session


def test_text_is_the_same_at_every_depth(model: str) -> None:
    texts = set()
    for depth in (0, 3, 8):
        with EngineSession(GenerationConfig(model, speculative_depth=depth, drafter="self", max_tokens=20)) as session:
            texts.add("".join(session.generate("in the end and the")))
    assert len(texts) == 1
    assert texts != {""}


def test_a_seed_fixes_what_is_sampled(model: str) -> None:
    def text(seed: int | None) -> str:
        config = GenerationConfig(model, temperature=1.0, seed=seed, max_tokens=20)
        with EngineSession(config) as session:
            return "".join(session.generate("the"))

    assert text(7) == text(7) != text(8)


def test_a_session_decodes_one_text_after_another(session: EngineSession) -> None:
    first = "".join(session.generate("in the end"))
    other = "".join(session.generate("another one"))
    assert first == "".join(session.generate("in the end")) != other


def test_a_prompt_may_be_text_tokens_or_messages(session: EngineSession) -> None:
    tokenizer = session.model.tokenizer
    by_text = list(session.generate("in the end"))
    assert list(session.generate(tokenizer.encode("in the end"))) == by_text
    messages = [{"role": "user", "content": "in the end"}]
    by_messages = list(session.generate(messages))
    assert list(session.generate(tokenizer.encode(tokenizer.render_chat(messages)))) == by_messages != by_text


def test_token_ids_may_be_numpys(session: EngineSession) -> None:
    tokens = session.model.tokenizer.encode("in the end")
    assert list(session.generate(np.array(tokens))) == list(session.generate(tokens))


def test_a_text_cannot_go_on_once_another_is_begun(session: EngineSession) -> None:
    first = session.generate("in the end")
    next(first)
    next(session.generate("another one"))
    with pytest.raises(StageOrderError, match="has begun another text"):
        next(first)


def test_a_stop_that_is_no_tuple_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="stop must be a tuple"):
        GenerationConfig(stop="the")  # type: ignore[arg-type]


def test_statistics_tell_drafted_and_accepted_by_position(session: EngineSession) -> None:
    assert session.stats.num_rounds == 0
    pieces = list(session.generate_pieces("in the end and the end"))
    stats = session.stats
    assert stats.num_rounds > 0
    assert stats.num_drafted >= stats.num_drafts > 0
    assert sum(stats.accepted_per_position) == stats.num_accepted
    assert len(stats.accepted_per_position) == 3
    assert sum(piece.accepted_draft for piece in pieces) <= stats.num_accepted
    assert session.num_output == 20


def test_the_stages_of_a_round_add_up_to_a_step(session: EngineSession) -> None:
    stepped = "".join(session.generate("in the end"))
    session.begin("in the end")
    text = ""
    while True:
        draft = session.draft()
        verdict = session.verify()
        emission = session.commit()
        assert emission.tokens[: verdict.num_accepted] == draft.tokens[: verdict.num_accepted]
        text += emission.text
        if emission.reason:
            break
    assert text == stepped


def test_a_text_may_be_begun_with_a_configuration_of_its_own(session: EngineSession) -> None:
    session.begin("the", GenerationConfig(speculative_depth=1, drafter="self", max_tokens=9))
    while session.step().reason is None:
        pass
    assert session.num_output == 9
    assert session.stats.depth == 1
    "".join(session.generate("the"))
    assert session.num_output == 20


def test_rolling_back_leaves_no_trace(session: EngineSession) -> None:
    expected = "".join(session.generate("in the end"))
    session.begin("in the end")
    text = ""
    while True:
        draft = session.draft()
        verdict = session.verify()
        session.rollback_speculative()
        assert session.draft() == draft
        assert session.verify() == verdict
        session.rollback_speculative()
        emission = session.step()
        text += emission.text
        if emission.reason:
            break
    assert text == expected


def test_stages_out_of_order_say_what_comes_first(session: EngineSession) -> None:
    with pytest.raises(StageOrderError, match=r"call begin\(prompt\)"):
        session.draft()
    session.begin("the")
    with pytest.raises(StageOrderError, match=r"call draft\(\) first"):
        session.verify()
    session.draft()
    with pytest.raises(StageOrderError, match="no verdict"):
        session.commit()
    list(session.generate("the"))
    with pytest.raises(StageOrderError, match="the text has ended"):
        session.step()
    with pytest.raises(StageOrderError, match="not open"):
        next(EngineSession().generate("the"))


@pytest.mark.parametrize(
    ("config", "prompt", "words"),
    [
        ({"drafter": "oracle"}, "the", "'oracle' is not available"),
        ({"speculative_depth": -1}, "the", "speculative_depth"),
        ({"max_tokens": 600}, "the", "maximum context length is 512"),
        ({}, [5, 100_000], "no token 100000"),
        ({"logit_bias": {5000: 1.0}}, "the", "no token 5000"),
        ({}, "", "prompt is empty"),
        ({}, [], "prompt is empty"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_runs(
    model: str, config: dict[str, object], prompt: str, words: str
) -> None:
    with EngineSession(GenerationConfig(model, **config)) as session, pytest.raises(InvalidRequestError, match=words):
        next(session.generate(prompt))


@pytest.mark.parametrize("prompt", ["half a character: \ud83e", [{"role": "user", "content": "\udcff"}]])
def test_text_that_is_none_is_refused(session: EngineSession, prompt: str | list[dict[str, str]]) -> None:
    with pytest.raises(InvalidRequestError, match="not valid Unicode"):
        next(session.generate(prompt))


@pytest.mark.parametrize(("field", "value"), [("temperature", float("nan")), ("top_p", 1.5), ("seed", 2**64)])
def test_a_value_out_of_its_range_is_refused_before_a_model_is_loaded(field: str, value: float) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{field} must be"):
        GenerationConfig("none", **{field: value})


def test_a_model_that_is_not_there_is_told_on_entering(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError), EngineSession(GenerationConfig(str(tmp_path / "none.gguf"))):
        pass
