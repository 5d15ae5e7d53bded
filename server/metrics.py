"""What /metrics tells: counters, gauges and histograms, named as vLLM names them.

Names, labels and buckets follow https://docs.vllm.ai/en/stable/usage/metrics/ so that dashboards made for it work.
Knows updates and when they came; knows no request body and no response. Everything is counted from the engine's
updates, the same that responses are made of, so that sums reconcile; also for a client that has gone.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest

from mtplx.engine.limits import Limits
from mtplx.engine.types import Completion, FinishReason, Load, RoundRecord, SpeculationReport, Update
from mtplx.server.load_metrics import LoadCollector

_FIRST_TOKEN_BUCKETS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_BETWEEN_TOKENS_BUCKETS_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_BUCKETS_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_WINDOW_DRAFTS = 256
_MOST_UNCOUNTED = 64  # updates


@dataclass
class Timeline:
    """When a request was submitted and when it last brought tokens, in monotonic seconds."""

    num_prompt_tokens: int
    submitted_at_s: float
    last_tokens_at_s: float | None = None


class _Registry(CollectorRegistry):
    """Leaves out when each series was made, which the text format would tell in a series of its own."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class Metrics:
    """The metrics of one served model, to be used from one thread.

    Tokens and drafts count when they come, a prompt once it has been processed, which its first token tells, and what
    describes a whole request when it ends. `load` and `speculation` are asked whenever the metrics are rendered.

    Updates are counted some at a time, and at the latest when somebody looks: one by one, between passes of a model
    that empty all caches, would take longer.
    """

    CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(
        self,
        namespace: str,
        model_name: str,
        limits: Limits,
        load: Callable[[], Load],
        speculation: Callable[[], SpeculationReport],
    ) -> None:
        self._speculation = speculation
        self._uncounted: list[tuple[Timeline, Update, float]] = []
        self._registry = _Registry()
        self._namespace = namespace
        self._model_name = model_name
        self._registry.register(LoadCollector(namespace, model_name, load))
        self._make_request_counters()
        self._make_histograms(_one_two_five(limits.context_length))
        self._make_speculation(limits)

    def observe(self, timeline: Timeline, update: Update, at_s: float) -> None:
        """Count one update, of the request with this timeline, that came at `at_s`."""
        self._uncounted.append((timeline, update, at_s))
        if len(self._uncounted) == _MOST_UNCOUNTED:
            self._count_all()

    def _count_all(self) -> None:
        for each in self._uncounted:
            self._count(*each)
        self._uncounted.clear()

    def _count(self, timeline: Timeline, update: Update, at_s: float) -> None:
        if update.token_ids:
            self._observe_tokens(timeline, len(update.token_ids), at_s)
        if update.round is not None:
            self._planned_depth.observe(update.round.depth)
        if update.round is not None and update.round.num_drafted:
            self._observe_draft(update.round)
        if update.round is not None and update.round.draft_failed:
            self._failed_drafts.labels(self._model_name, update.round.drafter).inc()
        if update.completion is not None:
            self._observe_completion(timeline, update.completion, at_s)

    def count_slow_reader(self) -> None:
        """Count a client that is cut off; its request ends by itself."""
        self._slow_readers.inc()

    def render(self) -> bytes:
        """The exposition in Prometheus's text format, the one in which names may have a colon everywhere."""
        self._count_all()
        self._set_learnt(self._speculation())
        return generate_latest(self._registry)

    # ---- observing --------------------------------------------------------------------------------------------

    def _observe_tokens(self, timeline: Timeline, num_tokens: int, at_s: float) -> None:
        self._generation_tokens.inc(num_tokens)
        if timeline.last_tokens_at_s is None:
            self._prompt_tokens.inc(timeline.num_prompt_tokens)
            self._first_token.observe(at_s - timeline.submitted_at_s)
        else:
            for _ in range(num_tokens):  # a round brings its tokens at once; each took its share of the time
                self._between_tokens.observe((at_s - timeline.last_tokens_at_s) / num_tokens)
        timeline.last_tokens_at_s = at_s

    def _observe_draft(self, record: RoundRecord) -> None:
        self._drafts.labels(self._model_name, record.drafter).inc()
        self._draft_tokens.labels(self._model_name, record.drafter).inc(record.num_drafted)
        self._accepted_tokens.labels(self._model_name, record.drafter).inc(record.num_accepted)
        for position in range(record.num_accepted):
            self._accepted_at.labels(self._model_name, record.drafter, str(position)).inc()
        window = self._windows[record.drafter]
        window.append((record.num_accepted, record.num_drafted))
        accepted, drafted = (sum(counts) for counts in zip(*window, strict=True))
        self._acceptance_rate.labels(self._model_name, record.drafter).set(accepted / drafted)

    def _observe_completion(self, timeline: Timeline, completion: Completion, at_s: float) -> None:
        self._finished.labels(self._model_name, completion.reason).inc()
        if completion.reason == "abort":
            phase = "prompt" if timeline.last_tokens_at_s is None else "output"
            self._cancelled.labels(self._model_name, phase).inc()
            self._cancelled_tokens.inc(completion.num_output_tokens)
        self._request_time.observe(at_s - timeline.submitted_at_s)
        self._queue_time.observe(completion.queue_time_s)
        self._request_prompt.observe(completion.num_prompt_tokens)
        self._request_generation.observe(completion.num_output_tokens)

    def _set_learnt(self, report: SpeculationReport) -> None:
        for rows, seconds in report.verify_s.items():
            self._verify_time.labels(self._model_name, str(rows)).set(seconds)
        for drafter, seconds in report.draft_s.items():
            self._draft_time.labels(self._model_name, drafter).set(seconds)
        for drafter, shares in report.survival.items():
            for position, share in enumerate(shares):
                self._survival.labels(self._model_name, drafter, str(position)).set(share)

    # ---- making -----------------------------------------------------------------------------------------------

    def _make_request_counters(self) -> None:
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens processed.").labels(self._model_name)
        self._generation_tokens = self._counter("generation_tokens", "Tokens generated.").labels(self._model_name)
        self._finished = self._counter("request_success", "Requests that ended, by reason.", "finished_reason")
        for reason in get_args(FinishReason):
            self._finished.labels(self._model_name, reason)
        self._cancelled = self._counter(
            "cancelled_requests", "Requests whose client went, by whether output had begun.", "phase"
        )
        for phase in ("prompt", "output"):
            self._cancelled.labels(self._model_name, phase)
        self._cancelled_tokens = self._counter(
            "cancelled_generation_tokens", "Tokens generated for requests whose client went."
        ).labels(self._model_name)
        self._slow_readers = self._counter(
            "slow_readers", "Clients cut off because they read their stream too slowly."
        ).labels(self._model_name)

    def _make_histograms(self, token_buckets: Sequence[float]) -> None:
        self._first_token = self._histogram(
            "time_to_first_token_seconds", "Time from submission to the first token.", _FIRST_TOKEN_BUCKETS_S
        )
        self._between_tokens = self._histogram(
            "inter_token_latency_seconds", "Time a token took after the one before it.", _BETWEEN_TOKENS_BUCKETS_S
        )
        self._request_time = self._histogram(
            "e2e_request_latency_seconds", "Time from submission to the end.", _REQUEST_BUCKETS_S
        )
        self._queue_time = self._histogram(
            "request_queue_time_seconds", "Time spent waiting for a turn.", _REQUEST_BUCKETS_S
        )
        self._request_prompt = self._histogram("request_prompt_tokens", "Prompt tokens of a request.", token_buckets)
        self._request_generation = self._histogram(
            "request_generation_tokens", "Tokens generated for a request.", token_buckets
        )

    def _make_speculation(self, limits: Limits) -> None:
        self._drafts = self._counter("spec_decode_num_drafts", "Rounds with a draft.", "drafter")
        self._draft_tokens = self._counter("spec_decode_num_draft_tokens", "Tokens drafted.", "drafter")
        self._accepted_tokens = self._counter(
            "spec_decode_num_accepted_tokens", "Draft tokens that became output.", "drafter"
        )
        self._accepted_at = self._counter(
            "spec_decode_num_accepted_tokens_per_pos",
            "Draft tokens that became output, by position in the draft.",
            "drafter",
            "position",
        )
        self._failed_drafts = self._counter(
            "spec_decode_num_failed_drafts", "Rounds in which the drafter failed.", "drafter"
        )
        self._acceptance_rate = self._gauge(
            "spec_decode_draft_acceptance_rate",
            f"Accepted share of the tokens of the last {_WINDOW_DRAFTS} drafts.",
            "drafter",
        )
        self._planned_depth = self._histogram(
            "spec_decode_planned_depth", "Tokens that a round was to draft.", range(limits.max_depth + 1)
        )
        self._verify_time = self._gauge(
            "spec_decode_verify_seconds", "Usual time of a round by its number of rows, as of now.", "rows"
        )
        self._draft_time = self._gauge(
            "spec_decode_draft_token_seconds", "Usual time to draft a token, as of now.", "drafter"
        )
        self._survival = self._gauge(
            "spec_decode_survival", "Share of drafts that survive up to a position.", "drafter", "position"
        )
        for drafter in limits.drafters:  # a counter that is there from the start has a rate from the start
            for counter in (self._drafts, self._draft_tokens, self._accepted_tokens, self._failed_drafts):
                counter.labels(self._model_name, drafter)
            for position in range(limits.max_depth):
                self._accepted_at.labels(self._model_name, drafter, str(position))
        self._windows: defaultdict[str, deque[tuple[int, int]]] = defaultdict(lambda: deque(maxlen=_WINDOW_DRAFTS))

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(self._full_name(name), help_text, ["model_name", *labels], registry=self._registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(self._full_name(name), help_text, ["model_name", *labels], registry=self._registry)

    def _histogram(self, name: str, help_text: str, buckets: Sequence[float]) -> Histogram:
        full_name = self._full_name(name)
        histogram = Histogram(full_name, help_text, ["model_name"], buckets=buckets, registry=self._registry)
        return histogram.labels(self._model_name)

    def _full_name(self, name: str) -> str:
        return f"{self._namespace}:{name}"


def _one_two_five(most: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 … up to `most`."""
    steps = (digit * 10.0**exponent for exponent in range(len(str(most))) for digit in (1, 2, 5))
    return tuple(step for step in steps if step <= most)
