"""Log probabilities in OpenAI's words, of which each endpoint has its own.

Knows scores and how single tokens are spelled. Knows no reply.
"""

from collections.abc import Sequence

from mtplx.engine.types import TokenScore, Update
from mtplx.server.schemas.replies import ChatLogprobs, ChosenTokenLogprob, TextLogprobs
from mtplx.server.token_texts import TokenTexts


def told(update: Update) -> Sequence[tuple[TokenScore, str]]:
    """The scores of an update, each with the text its token made certain. A token that ended the text is not told."""
    scored = list(zip(update.scores, update.pieces, strict=True))
    end = update.completion
    return scored[:-1] if end is not None and end.reason == "stop" and not isinstance(end.stop_reason, str) else scored


def chat_logprobs(scores: Sequence[TokenScore], texts: TokenTexts) -> ChatLogprobs:
    """As the chat endpoint words them."""
    return ChatLogprobs(
        content=[
            ChosenTokenLogprob(
                **texts.scored(score.token, score.logprob).model_dump(),
                top_logprobs=[texts.scored(token, logprob) for token, logprob in score.top],
            )
            for score in scores
        ]
    )


class TextLogprobsWriter:
    """Words them as the completions endpoint does, where each token's place in the text counts from its beginning."""

    def __init__(self, texts: TokenTexts) -> None:
        self._texts = texts
        self._offset = 0

    def prompt(self, tokens: Sequence[int], pieces: Sequence[str], scores: Sequence[TokenScore]) -> TextLogprobs:
        """Of an echoed prompt, whose first token has no score."""
        first = TextLogprobs(
            tokens=[self._texts.spelled(tokens[0])], token_logprobs=[None], top_logprobs=[None], text_offset=[0]
        )
        self._offset = len(pieces[0])
        return joined([first, self.output(list(zip(scores, pieces[1:], strict=True)))])

    def output(self, scored: Sequence[tuple[TokenScore, str]]) -> TextLogprobs:
        """Of tokens that follow those worded before."""
        logprobs = TextLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
        for score, piece in scored:
            logprobs.tokens.append(self._texts.spelled(score.token))
            logprobs.token_logprobs.append(score.logprob)
            logprobs.top_logprobs.append(self._top(score))
            logprobs.text_offset.append(self._offset)
            self._offset += len(piece)
        return logprobs

    def _top(self, score: TokenScore) -> dict[str, float]:
        """The likeliest tokens, and the chosen one whether it is among them or not."""
        likeliest = {self._texts.spelled(token): logprob for token, logprob in score.top}
        return likeliest | {self._texts.spelled(score.token): score.logprob}


def joined(parts: Sequence[TextLogprobs]) -> TextLogprobs:
    return TextLogprobs(
        tokens=[each for part in parts for each in part.tokens],
        token_logprobs=[each for part in parts for each in part.token_logprobs],
        top_logprobs=[each for part in parts for each in part.top_logprobs],
        text_offset=[each for part in parts for each in part.text_offset],
    )
