"""Which requests of the engine make up one reply, and which of their texts it tells.

Knows requests and their updates; knows no words and no HTTP.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from mtplx.engine.types import Completion, Request, Update


@dataclass(frozen=True)
class ReplyPlan:
    """`num_candidates` requests for each prompt, prompt after prompt, of which the best `num_choices` are told."""

    requests: Sequence[Request]
    num_candidates: int = 1
    num_choices: int = 1


@dataclass
class Text:
    """What has come of one request: its end, its tokens where a prediction is compared with them, and its updates where
    they are worded all together."""

    request: Request
    completion: Completion | None = None
    tokens: list[int] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)

    @property
    def mean_logprob(self) -> float:
        """What the best of several texts has most of; an empty text has 0, the most there is."""
        logprobs = [score.logprob for update in self.updates for score in update.scores]
        return sum(logprobs) / len(logprobs) if logprobs else 0.0


class Texts:
    """What has come of the requests of a plan. A stream's updates are not kept: a long text has many."""

    def __init__(self, plan: ReplyPlan, *, keeps_updates: bool) -> None:
        self._plan = plan
        self._keeps_updates = keeps_updates
        self._texts = {request.id: Text(request) for request in plan.requests}
        self._indices = {request.id: index for index, request in enumerate(plan.requests)}

    def add(self, update: Update) -> int:
        """Note the update; the index of its request."""
        text = self._texts[update.request_id]
        text.completion = update.completion
        if text.request.prediction:
            text.tokens += update.token_ids
        if self._keeps_updates:
            text.updates.append(update)
        return self._indices[update.request_id]

    @property
    def by_prompt(self) -> list[list[Text]]:
        groups: defaultdict[int, list[Text]] = defaultdict(list)
        for index, text in enumerate(self._texts.values()):
            groups[index // self._plan.num_candidates].append(text)
        return list(groups.values())

    @property
    def told(self) -> list[Text]:
        """The choices: of each prompt's texts the likeliest, or all in order where all are told."""
        chosen = []
        for texts in self.by_prompt:
            if self._plan.num_choices < self._plan.num_candidates:
                texts = sorted(texts, key=lambda text: -text.mean_logprob)[: self._plan.num_choices]
            chosen += texts
        return chosen

    @property
    def completions(self) -> list[Completion]:
        """The ends that have come."""
        return [end for text in self._texts.values() if (end := text.completion) is not None]

    @property
    def are_complete(self) -> bool:
        return len(self.completions) == len(self._texts)
