"""What a model writes for its head to learn from."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from mtplx.engine.cache import SequenceCache
from mtplx.engine.errors import EngineError, InvalidRequestError
from mtplx.engine.models.running import make_target
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.training.corpus import LEFT_OUT, CorpusPlan, CorpusWriter
from mtplx.engine.training.data import Conversation, PlainText
from mtplx.engine.training.jobs import Answer, Jobs, Message, data_jobs, own_jobs
from mtplx.engine.training.openings import BEGINNINGS, ChatOpening, TextOpening, openings_for
from mtplx.engine.training.states import StateFile, computed_states
from mtplx.engine.training.texts import Text, TextFile
from mtplx.engine.types import Logits
from tests.engine.training.predictable import predictable_model
from tests.fakes import EOS, ByteTokenizer

MODEL = predictable_model()
TARGET = make_target(MODEL.model)
OPENING = tuple(b"<user>")


def short_messages(index: int) -> Message:
    """As in `own_jobs`, but short."""
    job = own_jobs(MODEL)(index)
    assert isinstance(job, Message)
    return replace(job, most_tokens=12)


def is_kept(text: Text) -> bool:
    return text != LEFT_OUT


class NoTemplate(ByteTokenizer):
    def render_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        raise InvalidRequestError("the model has no chat template; send a prompt to be completed instead")


class Counting:
    """A target, and how many rows it has forwarded."""

    way: Literal["rows", "sequential"] = "rows"

    def __init__(self, target: Target) -> None:
        self._target = target
        self.num_rows = 0

    def new_cache(self) -> SequenceCache:
        return self._target.new_cache()

    def forward(self, batch: Sequence[Rows]) -> list[Logits]:
        self.num_rows += sum(len(rows.tokens) for rows in batch)
        return self._target.forward(batch)


def written(
    folder: Path, num_tokens: int, jobs: Jobs, seed: int = 0, target: Target = TARGET
) -> tuple[TextFile, StateFile]:
    texts = TextFile(folder / "texts.jsonl")
    states = StateFile(folder / "states.f16", texts.texts, 32, 10**9)
    CorpusWriter(MODEL, target, CorpusPlan(num_tokens, 24, seed), texts, states, lambda text: None).write(jobs)
    return texts, states


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> tuple[TextFile, StateFile]:
    return written(tmp_path_factory.mktemp("own"), 300, short_messages)


def test_a_text_is_a_message_that_the_model_wrote_and_its_answer_to_it(own: tuple[TextFile, StateFile]) -> None:
    texts, _ = own
    assert texts.num_tokens >= 300
    assert sum(map(is_kept, texts.texts)) > 3
    for text in filter(is_kept, texts.texts):
        rendered = bytes(text.tokens[: text.num_given])
        assert rendered.startswith(b"<user>")
        assert rendered.endswith(b"\n<assistant>")
        assert 4 <= text.num_written <= 24


def test_every_other_answer_is_greedy(own: tuple[TextFile, StateFile]) -> None:
    texts, _ = own
    for text in filter(is_kept, texts.texts[::2]):
        answer = text.tokens[text.num_given :]
        hidden = computed_states(TARGET, text)[text.num_given - 1 :]
        likeliest = (hidden.astype(np.float32) @ np.array(MODEL.model.lm_head.weight).T).argmax(axis=-1)
        assert answer == tuple(likeliest)


def test_hidden_states_are_kept_as_the_answers_are_written(own: tuple[TextFile, StateFile]) -> None:
    texts, states = own
    assert states.num_texts == len(texts.texts)
    for number, text in enumerate(texts.texts):
        assert len(states.read(number)) == text.num_rows
        if is_kept(text):
            np.testing.assert_allclose(states.read(number), computed_states(TARGET, text), rtol=1e-2, atol=1e-2)


def test_what_a_text_begins_with_is_forwarded_once(tmp_path: Path) -> None:
    opening, ending = (70,) * 40, (80,)
    jobs = [Message(opening, 8, lambda written: (*opening, *written, *ending))] * 6
    target = Counting(TARGET)
    texts, _ = written(tmp_path, 10**6, lambda index: jobs[index] if index < len(jobs) else None, target=target)
    num_own_rows = sum(len(text.tokens) - len(opening) for text in texts.texts)
    assert sum(map(is_kept, texts.texts)) > 3
    num_again = 2 * len(jobs)  # the last given token, and the last written one
    assert target.num_rows <= len(opening) + num_own_rows + num_again


def test_more_tokens_are_the_same_ones_first_and_another_seed_gives_others(
    own: tuple[TextFile, StateFile], tmp_path: Path
) -> None:
    few = own[0].texts
    (tmp_path / "other").mkdir()
    assert written(tmp_path, 450, short_messages)[0].texts[: len(few)] == few
    assert written(tmp_path / "other", 30, short_messages, seed=1)[0].texts[0] != few[0]


def test_prompts_are_answered_and_texts_are_taken_as_they_are(tmp_path: Path) -> None:
    items = [Conversation(({"role": "user", "content": "ABC"},)), PlainText("some text"), PlainText("ab")]
    texts, states = written(tmp_path, 10**6, data_jobs(MODEL, items))
    answered, taken, short = texts.texts
    assert bytes(answered.tokens[: answered.num_given]) == b"<user>ABC\n<assistant>"
    assert taken == Text(tuple(b"some text"), 1)
    assert short == LEFT_OUT
    assert states.num_texts == 3


def test_a_prompt_that_came_before_or_leaves_no_room_is_left_out(tmp_path: Path) -> None:
    prompts = [(70, 71), (70, 71), (70,) * (MODEL.context_length - 2)]
    texts, _ = written(tmp_path, 10**6, lambda index: Answer(prompts[index]) if index < 3 else None)
    assert [text == LEFT_OUT for text in texts.texts] == [False, True, True]


def test_a_model_that_never_writes_anything_of_use_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="none of the last 500 texts was of any use"):
        written(tmp_path, 10, lambda index: Message((70,), 1, lambda written: None))


def test_a_chat_opens_with_what_its_template_puts_before_the_users_words() -> None:
    opening = ChatOpening(ByteTokenizer())
    assert opening.tokens == OPENING
    assert opening.prompt([*b" Why? ", EOS]) == tuple(b"<user>Why?\n<assistant>")
    assert opening.prompt([*b" \n", EOS]) is None


def test_half_of_the_messages_are_begun_and_each_beginning_is_answered_both_ways() -> None:
    openings = openings_for(ByteTokenizer())
    begun = [bytes(opening.tokens).decode().removeprefix("<user>") for opening in openings]
    assert begun[2::4] == begun[3::4] == list(BEGINNINGS)
    assert not any(begun[0::4])
    assert not any(begun[1::4])
    assert openings[2].prompt([*b" 3 pears.", EOS]) == tuple(b"<user>A shop sells 3 pears.\n<assistant>")


def test_without_a_template_the_model_goes_on_from_the_beginning_of_a_text() -> None:
    [opening] = openings_for(NoTemplate())
    assert isinstance(opening, TextOpening)
    assert opening.tokens == (EOS,)
    assert opening.prompt([70, 71]) == (EOS, 70, 71)
    assert opening.prompt([EOS]) is None


def test_a_long_text_is_taken_in_parts(tmp_path: Path) -> None:
    jobs = data_jobs(MODEL, [PlainText("x" * 1200)])
    lengths = [len(job.tokens) for index in range(3) if isinstance(job := jobs(index), Text)]
    assert lengths == [512, 512, 176]
    assert jobs(3) is None
