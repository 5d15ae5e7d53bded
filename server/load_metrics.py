"""What /metrics tells of the engine's load: what it holds and does now, and what it has counted since it started.

Names that vLLM has too are vLLM's. Knows the load; knows no request.
"""

from collections.abc import Callable, Iterator

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from mtplx.engine.types import Load


class LoadCollector(Collector):
    """Asks `load` once for all that one rendering tells, so that its values are of the same step."""

    def __init__(self, namespace: str, model_name: str, load: Callable[[], Load]) -> None:
        self._namespace = namespace
        self._model_name = model_name
        self._load = load

    def collect(self) -> Iterator[Metric]:
        load = self._load()
        for name, help_text, value in _gauges(load):
            gauge = GaugeMetricFamily(f"{self._namespace}:{name}", help_text, labels=["model_name"])
            gauge.add_metric([self._model_name], value)
            yield gauge
        for name, help_text, value in _counters(load):
            counter = CounterMetricFamily(f"{self._namespace}:{name}", help_text, labels=["model_name"])
            counter.add_metric([self._model_name], value)
            yield counter


def _gauges(load: Load) -> tuple[tuple[str, str, float], ...]:
    usage = load.cache_bytes / load.max_cache_bytes if load.max_cache_bytes else 0.0
    return (
        ("num_requests_running", "Requests being decoded.", load.num_running),
        ("num_requests_waiting", "Requests waiting for their turn.", load.num_waiting),
        ("kv_cache_usage_perc", "Share of the cache in use; 1 is all of it.", usage),
        ("kv_cache_bytes", "Bytes that running requests hold.", load.cache_bytes),
        ("kv_cache_reserved_bytes", "Bytes that running requests may grow to.", load.reserved_bytes),
        ("kv_cache_max_bytes", "Most bytes that may be reserved.", load.max_cache_bytes),
        ("prefix_cache_bytes", "Bytes kept for later requests.", load.prefix_bytes),
        ("prefix_cache_max_bytes", "Most bytes that may be kept for later requests.", load.max_prefix_bytes),
        ("step_rows", "Rows of the last step.", load.num_step_rows),
        ("step_max_rows", "Most rows that a step may have.", load.max_step_rows),
        ("step_seconds", "Time that the last step took.", load.step_s),
    )


def _counters(load: Load) -> tuple[tuple[str, str, float], ...]:
    return (
        ("prefix_cache_queries", "Prompt tokens looked up among those of earlier requests.", load.num_prefix_queries),
        ("prefix_cache_hits", "Prompt tokens found there.", load.num_prefix_hits),
    )
