"""What a reply cost, summed over its requests: tokens, and what speculation did.

Knows what came of the requests. Knows no words and no HTTP.
"""

from collections.abc import Sequence

from mtplx.engine.drafters.alignment import num_foreseen
from mtplx.engine.types import Completion, SpeculationStats
from mtplx.server.reply_plan import Text, Texts
from mtplx.server.schemas.replies import (
    CompletionTokensDetails,
    Metrics,
    PromptTokensDetails,
    SpeculativeDecoding,
    Usage,
)


def usage(texts: Texts, num_reasoning: int) -> Usage:
    """The tokens of a complete reply. A prompt counts once, however many texts follow it; texts count, told or not."""
    groups = [[_completion(text) for text in group] for group in texts.by_prompt]
    num_prompt = sum(group[0].num_prompt_tokens for group in groups)
    num_output = sum(end.num_output_tokens for group in groups for end in group)
    accepted, rejected = _foreseen([text for group in texts.by_prompt for text in group])
    return Usage(
        prompt_tokens=num_prompt,
        completion_tokens=num_output,
        total_tokens=num_prompt + num_output,
        prompt_tokens_details=PromptTokensDetails(
            cached_tokens=sum(group[0].num_cached_tokens for group in groups), audio_tokens=0
        ),
        completion_tokens_details=CompletionTokensDetails(
            reasoning_tokens=num_reasoning,
            audio_tokens=0,
            accepted_prediction_tokens=accepted,
            rejected_prediction_tokens=rejected,
        ),
    )


def metrics(texts: Texts) -> Metrics:
    """What speculation did for all texts of a complete reply together."""
    stats = SpeculationStats.sum([end.speculation for end in texts.completions])
    return Metrics(speculative_decoding=SpeculativeDecoding.of(stats))


def _completion(text: Text) -> Completion:
    assert text.completion is not None
    return text.completion


def _foreseen(texts: Sequence[Text]) -> tuple[int, int]:
    """Tokens of predictions that came as foreseen, and those that did not."""
    predicted = [text for text in texts if text.request.prediction]
    num_accepted = sum(num_foreseen(text.request.prediction, text.tokens) for text in predicted)
    return num_accepted, sum(len(text.request.prediction) for text in predicted) - num_accepted
