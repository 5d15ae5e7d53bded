"""`mtplx bench --serve`: when requests go out, what is read of their answers, what that adds up to."""

import argparse
import asyncio
import json
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path

import httpx
import pytest

from mtplx.engine.errors import InvalidRequestError
from mtplx.server.bench.prompts import Prompt
from mtplx.server.bench.serving.arrivals import Arrival, ClosedLoop, Poisson, Run
from mtplx.server.bench.serving.asking import Answer, Block, read_answer
from mtplx.server.bench.serving.bodies import endless_bodies
from mtplx.server.bench.serving.command import bench_serving
from mtplx.server.bench.serving.figures import figures
from mtplx.server.bench.serving.options import ServingOptions, add_serving_flags, serving_options
from mtplx.server.bench.serving.process import ServerError, own_server
from tests.bench.serving import split_gaps
from tests.server.conftest import DEADLINE_S, Client, StartServer
from tests.server.engines import letter_engine
from tests.tiny_models import CONFIGS, tiny_model_folder

# ---- answers --------------------------------------------------------------------------------------------------------


def piece(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


def blocks(*data: bytes) -> list[Block]:
    """One a second, the first at second 1."""
    return [Block(float(at_s), each) for at_s, each in enumerate(data, start=1)]


def test_a_chunk_came_when_the_block_that_ends_it_came() -> None:
    a, b = piece("a"), piece("b")
    answer = read_answer(0.5, 9.0, blocks(a + b[:10], b[10:], piece(""), piece("c")))
    assert answer.text == "abc"
    assert answer.chunks_s == (1.0, 2.0, 4.0)
    assert answer.first_text_s == 0.5
    assert answer.gaps_s == [1.0, 2.0]


def test_tokens_are_what_usage_says_and_chunks_where_there_is_none() -> None:
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}\r\n\r\ndata: [DONE]\r\n\r\n'
    told = read_answer(0, 9, blocks(b": waiting\n\n", piece("ab"), usage))
    assert (told.num_prompt_tokens, told.num_output_tokens, told.error) == (7, 5, None)
    untold = read_answer(0, 9, blocks(piece("ab"), piece("c"), b"data: [DONE]\n\n"))
    assert (untold.num_prompt_tokens, untold.num_output_tokens, untold.error) == (0, 2, None)


def test_an_error_amid_a_stream_and_a_reply_without_text_are_failures() -> None:
    broken = read_answer(0, 9, blocks(piece("a"), b'data: {"error": {"message": "no more"}}\n\n'))
    assert "no more" in (broken.error or "")
    assert broken.text == "a"
    assert read_answer(0, 9, blocks(b"data: [DONE]\n\n")).error == "the reply had no text"


# ---- arrivals -------------------------------------------------------------------------------------------------------


def most_open(arrival: Arrival, num_requests: int, enough: int) -> int:
    """The most requests that were open at once, where none is answered before `enough` were."""
    num_open = most = 0
    are_enough = asyncio.Event()

    async def handle(request: httpx.Request) -> httpx.Response:
        nonlocal num_open, most
        num_open += 1
        most = max(most, num_open)
        if most >= enough:
            are_enough.set()
        await are_enough.wait()
        num_open -= 1
        return httpx.Response(200, content=piece("a"))

    async def send() -> list[Answer]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as client:
            bodies = [{"number": number} for number in range(num_requests)]
            return await asyncio.wait_for(arrival.send(client, "http://here", bodies), DEADLINE_S)

    answers = asyncio.run(send())
    assert [answer.error for answer in answers] == [None] * num_requests
    return most


def test_a_closed_loop_has_as_many_requests_open_as_clients() -> None:
    assert most_open(ClosedLoop(3), num_requests=10, enough=3) == 3


def test_poisson_arrivals_do_not_wait_for_answers() -> None:
    assert most_open(Poisson(rate=1000.0, seed=0), num_requests=10, enough=10) == 10


def test_poisson_waits_have_the_rate_and_are_the_seeds() -> None:
    waits_s = Poisson(rate=4.0, seed=1).waits_s(10_000)
    assert sum(waits_s) / len(waits_s) == pytest.approx(1 / 4, rel=0.05)
    assert waits_s == Poisson(rate=4.0, seed=1).waits_s(10_000)
    assert waits_s != Poisson(rate=4.0, seed=2).waits_s(10_000)


# ---- bodies and figures ---------------------------------------------------------------------------------------------


def test_no_two_prompts_begin_alike_and_end_tokens_are_forbidden() -> None:
    prompts = [Prompt(name, "any", ({"role": "user", "content": "Say it."},)) for name in ("one", "two")]
    made = endless_bodies(prompts, max_tokens=9, end_tokens=[2], fields={"temperature": 1})
    bodies = list(islice(made, 5))
    assert {body["logit_bias"]["2"] for body in bodies} == {-100}
    assert {(body["max_tokens"], body["temperature"]) for body in bodies} == {(9, 1)}
    texts = sorted(body["messages"][0]["content"] for body in bodies)
    assert not any(after.startswith(before) for before, after in pairwise(texts))


def answered(sent_s: float, chunks_s: Sequence[float], num_output: int) -> Answer:
    return Answer(sent_s, chunks_s[-1], tuple(chunks_s), "text", 10, num_output)


def test_figures_are_over_all_runs_and_what_failed_counts_for_nothing() -> None:
    first = Run((answered(0.0, [1.0, 1.1, 1.2], 6), answered(1.0, [1.5, 2.5], 2)), elapsed_s=2.0)
    second = Run((Answer(0.0, 9.0, (0.1,), "a", 99, 99, error="lost"),), elapsed_s=2.0)
    made = figures("here", "2 clients", [first, second])
    assert (made.num_requests, made.num_failed) == (3, 1)
    assert (made.prompt_tokens, made.output_tokens, made.tokens_per_s) == (10, 4, 2.0)
    assert made.tokens_per_chunk == 8 / 5
    assert made.first_text_ms.p50 == pytest.approx(750)
    assert made.between_ms.p50 == pytest.approx(100)
    assert made.whole_ms.p50 == pytest.approx(1350)


def test_a_gap_counts_as_usual_only_if_it_has_no_part_in_the_time_of_the_other_prompt() -> None:
    usual, meanwhile = split_gaps([0.0, 1.0, 3.0, 6.0, 10.0, 15.0], start_s=2.0, end_s=7.0)
    assert (usual, meanwhile) == ([1.0, 5.0], [2.0, 3.0, 4.0])


# ---- the command ----------------------------------------------------------------------------------------------------


def options(*words: str, json: Path | None = None) -> ServingOptions:
    """With short texts and those flags that the benchmark without `--serve` has too at their defaults."""
    parser = argparse.ArgumentParser()
    add_serving_flags(parser)
    parser.set_defaults(prompts=None, categories=(), limit=1, max_tokens=4, repeats=2, json=json)
    return serving_options(parser.parse_args(words))


def test_several_servers_are_measured_in_turn(
    start_server: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers: list[Client] = [start_server(letter_engine()) for _ in range(2)]
    urls = [f"http://{server.base_url.netloc.decode()}" for server in servers]
    path = tmp_path / "load.json"
    bench_serving(options("--serve", *urls, "--clients", "1,3", "--requests", "6", json=path), {})
    table = capsys.readouterr().out
    assert all(table.count(url) == 2 for url in urls)
    told = json.loads(path.read_text())["figures"]
    assert [(each["arrival"], each["server"]) for each in told] == [
        (arrival, url) for arrival in ("1 client", "3 clients") for url in urls
    ]
    assert {(each["num_requests"], each["num_failed"], each["output_tokens"]) for each in told} == {(12, 0, 4)}
    for server in servers:
        assert server.metric("mtplx:request_success_total") == 1 + 2 * 2 * 6


def test_rates_take_the_place_of_clients() -> None:
    chosen = options("--serve", "http://here/", "--rates", "0.5,2", "--fields", '{"ignore_eos": true}')
    assert (chosen.serve, chosen.rates, chosen.fields) == (("http://here",), (0.5, 2.0), {"ignore_eos": True})


@pytest.mark.parametrize("words", ["--clients 0", "--clients ,", "--rates 0", "--rates x", "--fields []", "--fields {"])
def test_what_cannot_be_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        options("--serve", *words.split())
    assert words.split()[0] in capsys.readouterr().err


def test_an_address_where_no_server_answers_is_named() -> None:
    with pytest.raises(ServerError, match=r"http://127\.0\.0\.1:9 does not answer"):
        bench_serving(options("--serve", "http://127.0.0.1:9"), {})


def test_a_folder_that_is_not_there_is_told_before_anything_is_measured() -> None:
    with pytest.raises(InvalidRequestError, match="no such folder"):
        bench_serving(options("--serve", json=Path("/no/where/load.json")), {})


@pytest.mark.slow
def test_without_an_address_our_own_server_is_measured_and_needs_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTPLX_API_KEY", "not-for-this-server")
    model = tiny_model_folder(tmp_path, "llama", {**CONFIGS["llama"], "max_position_embeddings": 4096})
    chosen = options("--serve", "--clients", "2", "--requests", "4", json=tmp_path / "load.json")
    bench_serving(chosen, {"model": str(model)})
    [told] = json.loads((tmp_path / "load.json").read_text())["figures"]
    assert (told["num_failed"], told["output_tokens"]) == (0, 4)


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="the model could not be loaded"), own_server({"model": tmp_path}):
        pass
