"""Log probabilities in OpenAI's words, of which each endpoint has its own.

Knows scores and how single tokens are spelled. Knows no reply.
"""

from collections.abc import Sequence

from mtplx.engine.types import TokenScore, Update
from mtplx.server.schemas.replies import ChatLogprobs, ChosenTokenLogprob, TextLogprobs
from mtplx.server.token_texts import TokenTexts


def chat_logprobs(updates: Sequence[Update], texts: TokenTexts) -> ChatLogprobs:
    """As the chat endpoint words them: of the message's tokens, and so not of one that ended it."""
    return ChatLogprobs(content=[_chosen(score, texts) for update in updates for score in _of_the_message(update)])


def _of_the_message(update: Update) -> Sequence[TokenScore]:
    end = update.completion
    is_ended = end is not None and end.reason == "stop" and not isinstance(end.stop_reason, str)
    return update.scores[:-1] if is_ended else update.scores


def _chosen(score: TokenScore, texts: TokenTexts) -> ChosenTokenLogprob:
    chosen = texts.scored(score.token, score.logprob)
    return ChosenTokenLogprob(
        token=chosen.token,
        logprob=chosen.logprob,
        bytes=chosen.bytes,
        top_logprobs=[texts.scored(token, logprob) for token, logprob in score.top],
    )


class TextLogprobsWriter:
    """Words them as the completions endpoint does, where each token's place in the text counts from its beginning.

    A token that ended the text is told too: who scores a text by an echo leaves out the last token, whatever it is.
    """

    def __init__(self, texts: TokenTexts, prompt: Sequence[int]) -> None:
        """`prompt` are the tokens before those that are worded first."""
        self._texts = texts
        self._detokenizer = texts.after(prompt)
        self._offset = 0

    def prompt(self, tokens: Sequence[int], text: str, scores: Sequence[TokenScore]) -> TextLogprobs:
        """Of an echoed prompt, with its text, whose first token has no score."""
        first = TextLogprobs(
            tokens=[self._texts.spelled(tokens[0])], token_logprobs=[None], top_logprobs=[None], text_offset=[0]
        )
        self._pass(tokens[0], text)
        logprobs = joined([first, self.output(scores, text)])
        self._offset = len(text)
        return logprobs

    def output(self, scores: Sequence[TokenScore], echoed: str = "") -> TextLogprobs:
        """Of tokens that follow those worded before."""
        logprobs = TextLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
        for score in scores:
            logprobs.tokens.append(self._texts.spelled(score.token))
            logprobs.token_logprobs.append(score.logprob)
            logprobs.top_logprobs.append(self._top(score))
            logprobs.text_offset.append(self._offset)
            self._pass(score.token, echoed)
        return logprobs

    def _pass(self, token: int, echoed: str) -> None:
        """Go on to where the next token begins. A text that is echoed may have spelled special tokens."""
        piece = self._detokenizer.push(token)
        if not piece and echoed.startswith(spelled := self._texts.spelled(token), self._offset):
            piece = spelled
        self._offset += len(piece)

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
