"""lm-eval's `local-completions` scores a task of our own as a plain forward of the model does."""

import json
import subprocess
from pathlib import Path
from typing import Any

import lm_eval
import pytest

from tests.clients.conftest import MODEL, ROOT

TASK = {
    "task": "capitals",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": str(Path(__file__).with_name("capitals.jsonl"))}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}",
    "doc_to_choice": "{{cities}}",
    "doc_to_target": "answer",
    "metric_list": [{"metric": "acc"}],
}


def evaluate(base_url: str, **options: object) -> dict[str, Any]:
    """The results of the task, with its samples."""
    arguments = {"model": MODEL, "base_url": f"{base_url}/completions", "max_retries": 1, **options}
    results: dict[str, Any] = lm_eval.simple_evaluate(
        "local-completions", model_args=arguments, tasks=[dict(TASK)], bootstrap_iters=0
    )
    return results


def plain_scores(pairs: list[list[str]]) -> list[tuple[float, bool]]:
    """What the model itself says, in a process that has neither engine nor server."""
    command = [ROOT / ".venv" / "bin" / "python", "-m", "tests.clients.scoring"]
    ran = subprocess.run(command, cwd=ROOT, input=json.dumps(pairs), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return [(logprob, is_greedy) for logprob, is_greedy in json.loads(ran.stdout)]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"tokenizer_backend": "remote", "batch_size": 4}, id="lists of token lists"),
        pytest.param({"tokenizer_backend": "auto", "num_concurrent": 4}, id="concurrent requests"),
    ],
)
def test_its_results_are_a_plain_forwards(base_url: str, options: dict[str, object]) -> None:
    results = evaluate(base_url, **options)
    samples = results["samples"]["capitals"]
    pairs = [list(argument) for sample in samples for argument in sample["arguments"]]
    scores = [score for sample in samples for [score] in sample["resps"]]
    expected = plain_scores(pairs)
    assert len(scores) == len(expected) == 18
    for (logprob, is_greedy), (plain_logprob, plain_is_greedy) in zip(scores, expected, strict=True):
        assert float(logprob) == pytest.approx(plain_logprob, abs=1e-4)
        assert is_greedy == plain_is_greedy
    best = [max(range(3), key=lambda choice: expected[3 * i + choice][0]) for i in range(6)]
    right = [choice == sample["doc"]["answer"] for choice, sample in zip(best, samples, strict=True)]
    assert results["results"]["capitals"]["acc,none"] == pytest.approx(sum(right) / 6)
