"""lm-eval's `local-completions`, which tokenizes by the server, scores a task as a plain forward of the model does."""

import json
import subprocess
from pathlib import Path
from typing import Any

import lm_eval
import pytest
from lm_eval.tasks import TaskManager

from tests.clients.conftest import MODEL, ROOT

QUESTIONS = Path(__file__).with_name("capitals.jsonl")
DOCS = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
TASK = {
    "task": "capitals",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": str(QUESTIONS)}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}",
    "doc_to_choice": "{{cities}}",
    "doc_to_target": "answer",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}

ROUNDING = 0.02  # what products whose inputs are rounded to 16 bits may move


def evaluate(base_url: str, **options: object) -> dict[str, Any]:
    """The results of the task, with its samples."""
    arguments = {"model": MODEL, "base_url": f"{base_url}/completions", "max_retries": 1, **options}
    results: dict[str, Any] = lm_eval.simple_evaluate(
        "local-completions",
        model_args=arguments,
        tasks=[dict(TASK)],
        task_manager=TaskManager(include_defaults=False),  # to read those takes half a minute
        bootstrap_iters=0,
    )
    return results


@pytest.fixture(scope="module")
def plain_scores() -> list[list[tuple[float, bool]]]:
    """What the model itself says of each city after each question, from a process of the server's environment."""
    pairs = [[doc["question"], f" {city}"] for doc in DOCS for city in doc["cities"]]
    command = [ROOT / ".venv" / "bin" / "python", "-m", "tests.clients.scoring"]
    ran = subprocess.run(command, cwd=ROOT, input=json.dumps(pairs), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    scores = iter(json.loads(ran.stdout))
    return [[next(scores) for _ in doc["cities"]] for doc in DOCS]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"tokenizer_backend": "remote", "batch_size": 4}, id="lists of token lists"),
        pytest.param({"tokenizer_backend": "auto", "num_concurrent": 4}, id="concurrent requests"),
    ],
)
def test_its_results_are_a_plain_forwards(
    base_url: str, options: dict[str, object], plain_scores: list[list[tuple[float, bool]]]
) -> None:
    results = evaluate(base_url, **options)
    for sample, expected in zip(results["samples"]["capitals"], plain_scores, strict=True):
        for [(logprob, is_greedy)], (plain_logprob, plain_is_greedy) in zip(sample["resps"], expected, strict=True):
            assert float(logprob) == pytest.approx(plain_logprob, abs=ROUNDING)
            assert is_greedy == plain_is_greedy
    best = [max(range(len(scores)), key=lambda city: scores[city]) for scores in plain_scores]
    right = [city == doc["answer"] for city, doc in zip(best, DOCS, strict=True)]
    assert results["results"]["capitals"]["acc,none"] == pytest.approx(sum(right) / len(right))
