"""The state of one choice while it is decoded. Knows its own bookkeeping; decides nothing."""

from dataclasses import dataclass

from mtplx.engine.cache import SequenceCache
from mtplx.engine.depth import Worth
from mtplx.engine.randomness import RandomKey, fresh_seed
from mtplx.engine.sampling import TokenHistory
from mtplx.engine.text.stream import TextStream
from mtplx.engine.types import Draft, FinishReason, Request, SpeculationStats, TokenScore


class Sequence:
    """Prompt and output of one request, and what goes with them. `ends` are the tokens that end its text.

    The last token of `tokens` is the pending one: its row has not been forwarded yet. At the start that is the last
    token of the prompt, so that prefill needs no logits and the first round is a round like any other.
    """

    def __init__(
        self, request: Request, cache: SequenceCache, text: TextStream, ends: frozenset[int] = frozenset()
    ) -> None:
        self.request = request
        self.cache = cache
        self.text = text
        self.tokens = list(request.prompt)
        self.ends = ends
        self.history = TokenHistory(request.prompt, request.grammar, ends, request.min_tokens)
        seed = request.sampling.seed
        self.key = RandomKey(fresh_seed() if seed is None else seed, request.choice)
        self.speculation = SpeculationStats.none(request.draft_depth)
        self.worth: Worth | None = None  # of draft tokens in the round under way, where that is known
        self.prompt_scores: tuple[TokenScore, ...] = ()  # of the second token on, as far as they are known
        self.error: Exception | None = None  # that came of scoring the prompt
        self.reason: FinishReason | None = None  # why the text has ended, once it has
        self.stop_reason: int | str | None = None  # the stop string or stop token of the request that ended it

    @property
    def num_output(self) -> int:
        """Also the position, in the output, of the next token to be decided."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def num_to_prefill(self) -> int:
        """Rows that are still to be forwarded before the next round: those before the pending token."""
        return len(self.tokens) - 1 - self.cache.num_committed

    def num_to_score(self, num_rows: int) -> int:
        """How many of the next rows, the last ones, are to tell how likely the prompt's next tokens are.

        That is none once its scores are known, though its rows be forwarded again.
        """
        if not self.request.scores_prompt:
            return 0
        end = min(self.cache.num_committed + num_rows, len(self.request.prompt) - 1)
        return max(0, end - len(self.prompt_scores))

    @property
    def max_depth(self) -> int:
        """The longest draft worth verifying: a round emits one token more."""
        return min(self.request.draft_depth, self.request.max_tokens - self.num_output - 1)

    def append(self, token: int) -> None:
        """Make `token` part of the output."""
        self.tokens.append(token)
        self.history.push(token)


@dataclass(frozen=True)
class Outcome:
    """What became of a draft: `num_accepted` of its tokens are part of the output now."""

    sequence: Sequence
    draft: Draft
    num_accepted: int
