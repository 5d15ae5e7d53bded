"""/metrics: its sums are those of what the responses reported."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mtplx.engine.types import Load
from tests.server.conftest import Client, StartServer, events
from tests.server.engines import MODEL, letter_engine
from tests.server.steppers import ScriptedStepper, completion, engine_with


def test_sums_reconcile_with_what_responses_reported(start_server: StartServer) -> None:
    client = start_server()
    wanted = {"max_tokens": 60, "temperature": 0}
    streamed = client.chat("Hi", stream=True, stream_options={"include_usage": True}, **wanted)
    replies = [
        client.complete(prompt="abc", **wanted).json(),
        client.complete(prompt="abcd", speculative_depth=5, **wanted).json(),
        client.complete(prompt="ab", drafter="none", stop="ff", **wanted).json(),
        client.chat("Hi", seed=3, max_tokens=40).json(),
        events(streamed)[-1],
    ]
    usages = [reply["usage"] for reply in replies]
    told = [reply["metrics"]["speculative_decoding"] for reply in replies]

    assert client.metric("mtplx:prompt_tokens_total") == sum(usage["prompt_tokens"] for usage in usages)
    assert client.metric("mtplx:generation_tokens_total") == sum(usage["completion_tokens"] for usage in usages)
    for metric, field in (
        ("num_drafts_total", "num_spec_steps"),
        ("num_draft_tokens_total", "num_draft_tokens"),
        ("num_accepted_tokens_total", "num_accepted_draft_tokens"),
    ):
        total = client.metric(f"mtplx:spec_decode_{metric}", model_name=MODEL, drafter="ngram")
        assert total == sum(each[field] for each in told) > 0
    for position in range(5):
        accepted = sum(sum(each["acceptance_histogram"][position + 1 :]) for each in told)
        name = "mtplx:spec_decode_num_accepted_tokens_per_pos_total"
        assert client.metric(name, position=str(position)) == accepted > 0

    for name in ("e2e_request_latency_seconds", "request_queue_time_seconds", "time_to_first_token_seconds"):
        assert client.metric(f"mtplx:{name}_count") == len(replies)
    assert client.metric("mtplx:request_generation_tokens_sum") == client.metric("mtplx:generation_tokens_total")
    assert client.metric("mtplx:request_prompt_tokens_sum") == client.metric("mtplx:prompt_tokens_total")
    rate = client.metric("mtplx:spec_decode_draft_acceptance_rate", drafter="ngram")
    assert rate == sum(each["num_accepted_draft_tokens"] for each in told) / sum(
        each["num_draft_tokens"] for each in told
    )


def test_ends_are_counted_by_reason(start_server: StartServer) -> None:
    client = start_server()
    client.complete(prompt="abc", max_tokens=3)
    client.complete(prompt="abc", max_tokens=3, logit_bias={"122": 100}, stop="zz")
    client.complete(prompt="abc!", max_tokens=3)
    client.complete(prompt="", max_tokens=3)
    ends = {
        reason: client.metric("mtplx:request_success_total", finished_reason=reason)
        for reason in ("length", "stop", "error", "abort")
    }
    assert ends == {"length": 1, "stop": 1, "error": 1, "abort": 0}


def test_counters_are_there_before_anything_happened(start_server: StartServer) -> None:
    text = start_server().get("/metrics").text
    assert f'mtplx:spec_decode_num_drafts_total{{drafter="ngram",model_name="{MODEL}"}} 0.0' in text
    position = (
        f'mtplx:spec_decode_num_accepted_tokens_per_pos_total{{drafter="ngram",model_name="{MODEL}",position="15"}}'
    )
    assert f"{position} 0.0" in text
    assert f'mtplx:request_success_total{{finished_reason="abort",model_name="{MODEL}"}} 0.0' in text


def test_the_namespace_and_the_models_name_are_settings(start_server: StartServer) -> None:
    client = start_server(metrics_namespace="vllm", served_model_name="alias")
    assert client.complete(model="alias", prompt="a", max_tokens=2).json()["model"] == "alias"
    assert client.metric("vllm:generation_tokens_total", model_name="alias") == 2
    assert "mtplx" not in client.get("/metrics").text


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.5,"
    "text/plain;version=1.0.0;escaping=underscores;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "text/plain",
        "application/openmetrics-text; version=1.0.0",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8",
        PROMETHEUS,
    ],
)
def test_names_are_the_same_whatever_a_scraper_accepts(client: Client, accept: str) -> None:
    response = client.get("/metrics", headers={"accept": accept})
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {sample.name for family in text_string_to_metric_families(response.text) for sample in family.samples}
    assert {
        "mtplx:kv_cache_usage_perc",
        "mtplx:prompt_tokens_total",
        "mtplx:request_success_total",
        "mtplx:inter_token_latency_seconds_bucket",
        "mtplx:spec_decode_num_accepted_tokens_per_pos_total",
    } <= samples
    assert all(name.startswith("mtplx:") for name in samples)


def test_when_a_series_was_made_is_no_series(client: Client) -> None:
    assert "_created" not in client.get("/metrics").text


def test_what_the_engine_holds_and_has_counted_is_told(start_server: StartServer) -> None:
    load = Load(
        cache_bytes=30,
        reserved_bytes=50,
        max_cache_bytes=120,
        prefix_bytes=7,
        max_prefix_bytes=9,
        num_prefix_queries=100,
        num_prefix_hits=60,
        num_step_rows=12,
        max_step_rows=64,
        step_s=0.25,
    )
    client = start_server(engine_with(ScriptedStepper([], completion(), load)))
    told = {
        "kv_cache_usage_perc": 0.25,
        "kv_cache_bytes": 30,
        "kv_cache_reserved_bytes": 50,
        "kv_cache_max_bytes": 120,
        "prefix_cache_bytes": 7,
        "prefix_cache_max_bytes": 9,
        "prefix_cache_queries_total": 100,
        "prefix_cache_hits_total": 60,
        "step_rows": 12,
        "step_max_rows": 64,
        "step_seconds": 0.25,
    }
    assert {name: client.metric(f"mtplx:{name}", model_name=MODEL) for name in told} == told


def test_a_prompt_counts_once_it_has_been_processed(start_server: StartServer) -> None:
    client = start_server(letter_engine(pace_s=0.02), max_running=1, keep_alive_s=0.05)
    body = {"model": MODEL, "prompt": "a" * 3000, "max_tokens": 1000, "stream": True}
    with client.stream("POST", "/v1/completions", json=body):
        client.wait_for(lambda client: client.metric("mtplx:num_requests_running") == 1)
    client.wait_for(lambda client: client.metric("mtplx:request_success_total", finished_reason="abort") == 1)
    assert client.metric("mtplx:prompt_tokens_total") == 0
    with client.stream("POST", "/v1/completions", json={**body, "prompt": "abc"}) as response:
        lines = response.iter_lines()  # closes the stream when it is dropped
        next(lines)
        assert client.metric("mtplx:prompt_tokens_total") == 3
        assert client.metric("mtplx:request_success_total") == 1
