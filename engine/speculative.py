"""The round: draft, verify, commit. One forward of the target for each.

Knows how a draft becomes output and what the cache keeps, and takes the time of its stages. Knows no queue and no
other sequences' fairness. Who drafts how much is the planner's choice.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from mtplx.engine.acceptance import walk_block, walk_coupled, walk_greedy, walk_rejection
from mtplx.engine.cache import SequenceCache
from mtplx.engine.drafters.base import Drafter
from mtplx.engine.hidden import HiddenRows
from mtplx.engine.models.target import Rows, Target
from mtplx.engine.planning import Plan, Planner
from mtplx.engine.randomness import Purpose
from mtplx.engine.sampling import adjust, check_finite, distribution, greedy_choice
from mtplx.engine.scoring import score_tokens
from mtplx.engine.sequence import Outcome
from mtplx.engine.sequence import Sequence as DecodedSequence
from mtplx.engine.survival import Promise
from mtplx.engine.text.stream import TextStream
from mtplx.engine.text.tokenizer import Tokenizer
from mtplx.engine.types import (
    AUTO,
    HEAD,
    PLAIN,
    Distribution,
    Draft,
    FinishReason,
    Logits,
    Request,
    RoundRecord,
    TokenScore,
    Verdict,
)

logger = logging.getLogger(__name__)

_MOST_EXPECTED = 256  # tokens of output, for most texts end long before they may
_MOST_ROWS = 64  # of a forward whose rows nobody limits


@dataclass(frozen=True)
class Emission:
    """What a round added to a sequence's output. `reason` is set when that was the end.

    `pieces` is the text that each token made certain; the first `record.num_accepted` tokens were drafted. `scores` are
    those of the tokens if the request wants any.
    """

    tokens: tuple[int, ...]
    pieces: tuple[str, ...]
    record: RoundRecord
    reason: FinishReason | None
    scores: tuple[TokenScore, ...] = ()

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Speculator:
    """The stages of a round over a target and its drafters, which requests choose by name."""

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Drafter],
        tokenizer: Tokenizer,
        promises: Mapping[str, Promise] = MappingProxyType({}),
    ) -> None:
        self.target = target
        self.drafters = drafters
        self.planner = Planner(tuple(drafters), promises)
        self._tokenizer = tokenizer
        self._failed_before: set[str] = set()

    def begin(self, request: Request) -> DecodedSequence:
        """The request as a sequence that nothing has been forwarded of."""
        text = TextStream(self._tokenizer.decode, request.prompt, request.stop)
        eos = frozenset() if request.ignore_eos else self._tokenizer.eos_token_ids
        return DecodedSequence(request, self._new_cache(request), text, eos.union(request.stop_token_ids))

    def prefill(self, sequence: DecodedSequence, num_rows: int) -> None:
        """Forward the next `num_rows` rows of the prompt."""
        self.verify([], [], [(sequence, num_rows)])

    def start_over(self, sequence: DecodedSequence) -> None:
        """Give the sequence a fresh cache, which is to be prefilled with all its text has been so far."""
        sequence.cache = self._new_cache(sequence.request)

    def draft(self, sequences: Sequence[DecodedSequence], most_rows: int | None = None) -> list[Draft]:
        """Guesses at how each sequence goes on, each drafter being asked once for all who want it.

        They will share a forward of at most `most_rows`, if that is given. A draft is empty where none is asked for,
        where the drafter has none, and where it fails.
        """
        started_at_s = time.perf_counter()
        plans = self._plan(sequences, most_rows)
        seconds = [(time.perf_counter() - started_at_s) / len(plans) for _ in plans]
        drafts = [Draft(drafter=plan.drafter, depth=plan.depth, failed=plan.failed) for plan in plans]
        for sequence, plan in zip(sequences, plans, strict=True):
            sequence.worth = plan.worth
            if self._wants_hidden(sequence.request) and sequence.cache.hidden is None:
                sequence.cache.hidden = HiddenRows()
        for name, drafter in self.drafters.items():
            asking = [index for index, plan in enumerate(plans) if name in plan.asks]
            if not asking:
                continue
            started_at_s = time.perf_counter()
            proposals = self._propose(drafter, [sequences[i] for i in asking], [plans[i].asks[name] for i in asking])
            elapsed_s = time.perf_counter() - started_at_s
            for index, proposal in zip(asking, proposals, strict=True):
                plan, sequence = plans[index], sequences[index]
                seconds[index] += elapsed_s
                if proposal.failed:
                    if plan.drafter in (PLAIN, name):
                        drafts[index] = Draft(failed=True, drafter=name, depth=plan.depth)
                    continue
                self.planner.drafted(
                    sequence, name, proposal, num_asked=plan.asks[name], seconds=elapsed_s / len(asking)
                )
                if plan.drafter == name:
                    drafts[index] = _cut(proposal, plan)
        return [
            Draft(draft.tokens, draft.distributions, draft.failed, draft.drafter, draft.depth, elapsed_s)
            for draft, elapsed_s in zip(drafts, seconds, strict=True)
        ]

    def verify(
        self,
        sequences: Sequence[DecodedSequence],
        drafts: Sequence[Draft],
        prompts: Sequence[tuple[DecodedSequence, int]] = (),
    ) -> list[Verdict | Exception]:
        """One forward over pending tokens and drafts, and what it makes of each draft.

        So many rows of the `prompts` given join it, and need no logits unless their request wants the prompt scored. An
        exception in place of a verdict is what judging that one draft raised. After a forward that raises, the caches
        of all are of no further use.
        """
        batch = [
            Rows(sequence.cache, [sequence.tokens[-1], *draft.tokens], len(draft) + 1)
            for sequence, draft in zip(sequences, drafts, strict=True)
        ]
        batch += [
            Rows(sequence.cache, _next_rows(sequence, num_rows), sequence.num_to_score(num_rows))
            for sequence, num_rows in prompts
        ]
        started_at_s = time.perf_counter()
        logits = self.target.forward(batch)
        judged = list(zip(sequences, drafts, logits[: len(drafts)], strict=True))
        verdicts = [_judged(*each) for each in judged]
        elapsed_s = time.perf_counter() - started_at_s
        for (sequence, num_rows), rows in zip(prompts, logits[len(drafts) :], strict=True):
            sequence.cache.commit(num_rows)
            sequence.error = _score_prompt(sequence, rows)
        if len(sequences) == 1 and not prompts:
            self.planner.verified(sequences[0], len(batch[0].tokens), elapsed_s)
        elif sequences:
            self.planner.verified_together(sum(len(rows.tokens) for rows in batch), elapsed_s)
        return [
            verdict
            if isinstance(verdict, Exception)
            else Verdict(verdict.num_accepted, verdict.token, _scores(verdict, *each), elapsed_s)
            for verdict, each in zip(verdicts, judged, strict=True)
        ]

    def commit(self, sequence: DecodedSequence, draft: Draft, verdict: Verdict | Exception) -> Emission:
        """Make the accepted run output, cut where the text ends; keep its rows and forget the others.

        Raises the exception that came in place of a verdict.
        """
        if isinstance(verdict, Exception):
            raise verdict
        pieces = self._emit(sequence, (*draft.tokens[: verdict.num_accepted], verdict.token))
        # The pending token's row and those of all new tokens but the last, which is pending now.
        sequence.cache.commit(len(pieces))
        num_accepted = min(verdict.num_accepted, len(pieces))
        failed = draft.failed or not self._observe(Outcome(sequence, draft, num_accepted))
        record = RoundRecord(
            draft.drafter, len(draft), num_accepted, failed, draft.depth, draft.seconds, verdict.seconds
        )
        sequence.speculation = sequence.speculation.after(record)
        self.planner.committed(sequence, record, num_emitted=len(pieces))
        tokens, scores = tuple(sequence.tokens[-len(pieces) :]), verdict.scores[: len(pieces)]
        return Emission(tokens, tuple(pieces), record, sequence.reason, scores)

    def _emit(self, sequence: DecodedSequence, run: Sequence[int]) -> list[str]:
        """Append tokens until the text ends, if it does; the text that each made certain."""
        pieces: list[str] = []
        for token in run:
            sequence.append(token)
            if token in sequence.ends:
                sequence.reason = "stop"
                sequence.stop_reason = token if token in sequence.request.stop_token_ids else None
                return [*pieces, sequence.text.finish()]
            may_stop = sequence.num_output > sequence.request.min_tokens
            piece, sequence.stop_reason = sequence.text.push(token, may_stop=may_stop)
            if sequence.stop_reason is not None:
                sequence.reason = "stop"
                return [*pieces, piece]
            if sequence.num_output == sequence.request.max_tokens:
                sequence.reason = "length"
                return [*pieces, piece + sequence.text.finish()]
            pieces.append(piece)
        return pieces

    def _new_cache(self, request: Request) -> SequenceCache:
        """One that keeps hidden states if the request's rounds may want them.

        Rows that are lent have none. Where drafts must not hang on what was lent, there are none of the prompt at all.
        """
        cache = self.target.new_cache()
        cache.expected_rows = len(request.prompt) + min(request.max_tokens, _MOST_EXPECTED)
        if self._wants_hidden(request) and not request.needs_same_drafts:
            cache.hidden = HiddenRows()
        return cache

    def _wants_hidden(self, request: Request) -> bool:
        return HEAD in self.drafters and request.draft_depth > 0 and request.drafter in (AUTO, HEAD)

    def _observe(self, outcome: Outcome) -> bool:
        """Tell the drafter, if it drafted anything; False when it fails on that."""
        if not len(outcome.draft):
            return True
        drafter = self.drafters[outcome.draft.drafter]
        try:
            drafter.observe([outcome])
        except Exception:
            self._log_failure(drafter)
            return False
        return True

    def _plan(self, sequences: Sequence[DecodedSequence], most_rows: int | None) -> list[Plan]:
        """The planner's choices; a plain round where a drafter fails to say how confident it is."""
        confidences = [self._confidences(sequence) for sequence in sequences]
        if len(sequences) == 1:
            [sequence], [known] = sequences, confidences
            plan = known if isinstance(known, Plan) else self.planner.plan(sequence, known)
            if most_rows is not None and sequence.request.auto_depth and plan.depth >= most_rows:
                plan = replace(plan, depth=most_rows - 1)
            return [plan]
        able = [index for index, known in enumerate(confidences) if not isinstance(known, Plan)]
        plans = [known if isinstance(known, Plan) else Plan() for known in confidences]
        planned = self.planner.plan_together(
            [sequences[index] for index in able],
            [known for known in confidences if not isinstance(known, Plan)],
            most_rows or _MOST_ROWS,
        )
        for index, plan in zip(able, planned, strict=True):
            plans[index] = plan
        return plans

    def _confidences(self, sequence: DecodedSequence) -> Mapping[str, int] | Plan:
        """How confident the drafters are that the planner may choose from; a plain round if one fails to say."""
        confidences = {}
        for name in self.planner.candidates(sequence):
            try:
                confidences[name] = self.drafters[name].confidence(sequence)
            except Exception:
                self._log_failure(self.drafters[name])
                return Plan(name, failed=True)
        return confidences

    def _propose(self, drafter: Drafter, sequences: Sequence[DecodedSequence], depths: Sequence[int]) -> list[Draft]:
        """What the drafter proposes, failed drafts if it raises."""
        try:
            return drafter.propose(sequences, depths)
        except Exception:
            self._log_failure(drafter)
            return [Draft(failed=True)] * len(sequences)

    def _log_failure(self, drafter: Drafter) -> None:
        """Log the exception being handled, unless this drafter has failed before."""
        if drafter.name not in self._failed_before:
            logger.exception("the drafter %r failed; rounds go on without its help", drafter.name)
            self._failed_before.add(drafter.name)


def _cut(proposal: Draft, plan: Plan) -> Draft:
    """As much of a proposal as is to be verified."""
    distributions = proposal.distributions and proposal.distributions[: plan.depth]
    return Draft(proposal.tokens[: plan.depth], distributions, drafter=plan.drafter, depth=plan.depth)


def _next_rows(sequence: DecodedSequence, num_rows: int) -> list[int]:
    start = sequence.cache.num_committed
    return sequence.tokens[start : start + num_rows]


def _scores(verdict: Verdict, sequence: DecodedSequence, draft: Draft, logits: Logits) -> tuple[TokenScore, ...]:
    """Of the tokens that the verdict makes output, by logits [K + 1, V]."""
    num_top = sequence.request.num_logprobs
    if num_top is None:
        return ()
    tokens = (*draft.tokens[: verdict.num_accepted], verdict.token)
    return score_tokens(logits[: len(tokens)], tokens, num_top)


def _score_prompt(sequence: DecodedSequence, logits: Logits) -> Exception | None:
    """Score the prompt's next tokens by logits [N, V]; what is wrong with them, which is no other sequence's affair."""
    start = 1 + len(sequence.prompt_scores)
    tokens = sequence.request.prompt[start : start + len(logits)]
    try:
        for row in logits:
            check_finite(row, 0)
        sequence.prompt_scores += score_tokens(logits, tokens, sequence.request.num_logprobs or 0)
    except Exception as error:
        return error
    return None


def _judged(sequence: DecodedSequence, draft: Draft, logits: Logits) -> Verdict | Exception:
    """As `judge`; what is wrong with one sequence is no other's affair."""
    try:
        return judge(sequence, draft, logits)
    except Exception as error:
        return error


def judge(sequence: DecodedSequence, draft: Draft, logits: Logits) -> Verdict:
    """What the target, by its logits [K + 1, V] after each row, makes of the draft.

    Raises NonFiniteLogitsError for a row that no token can be chosen from.
    """
    params, key = sequence.request.sampling, sequence.key
    history = sequence.history.ahead()
    start = sequence.num_output

    # Walks ask for positions in order, and for none after a token that cannot be: processors advance with them.
    def advance(position: int) -> Logits:
        if position > 0:
            history.push(draft.tokens[position - 1])
        row: Logits = logits[position]
        return row

    def target_distribution(position: int) -> Distribution:
        row = advance(position)
        check_finite(row, start + position)
        return distribution(adjust(row, params, history), params)

    if params.greedy:
        return walk_greedy(lambda position: greedy_choice(advance(position), params, history, start + position), draft)
    if sequence.request.acceptance == "coupled":
        return walk_coupled(target_distribution, draft, lambda position, size: key.noise(start + position, size))
    walk = walk_block if sequence.request.acceptance == "block" else walk_rejection
    return walk(
        target_distribution,
        draft,
        # Counted by the round too: `block` decides on positions past those it keeps, which the next round judges anew.
        accept=lambda position: key.uniform(start + position, Purpose.ACCEPT, start),
        emit=lambda position: key.uniform(start + position, Purpose.EMIT),
    )
