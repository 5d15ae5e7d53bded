"""Models from the hub: what is asked of it, and what each of its failures is explained as. Nothing is downloaded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import errors, snapshot_download

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models import hub
from mtplx.engine.models.loading import load_model
from tests.tiny_models import tiny_model_folder

Answer = Callable[..., Any]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], None]:
    """Lets a function answer in place of the hub."""
    return lambda function: monkeypatch.setattr(hub, "snapshot_download", function)


def test_a_hub_model_is_called_by_its_id(answer: Callable[[Answer], None], tmp_path: Path) -> None:
    asked = {}

    def hub_answers(hub_id: str, **options: Any) -> str:
        asked.update(options, id=hub_id)
        return str(tiny_model_folder(tmp_path, "llama"))

    answer(hub_answers)
    assert load_model("someone/tiny-llama").id == "someone/tiny-llama"
    assert asked["id"] == "someone/tiny-llama"
    assert "*.py" not in asked["allow_patterns"]  # no code from strangers
    assert asked["tqdm_class"] is None  # the hub's own bar


def test_the_bar_can_be_left_out(answer: Callable[[Answer], None], tmp_path: Path) -> None:
    def hub_answers(hub_id: str, **options: Any) -> str:
        assert options["tqdm_class"](total=3).disable
        return str(tiny_model_folder(tmp_path, "llama"))

    answer(hub_answers)
    load_model("someone/tiny-llama", progress=False)


class FakeResponse:
    """As much of an HTTP response as the hub's errors look at."""

    status_code = 500
    headers: dict[str, str] = {}  # noqa: RUF012
    request = None
    text = ""


def http(kind: type[Exception]) -> Exception:
    return kind("from the hub", response=FakeResponse())


@pytest.mark.parametrize(
    ("error", "complaint"),
    [
        (http(errors.GatedRepoError), "access to 'a/b' must be granted: .* set HF_TOKEN"),
        (http(errors.RepositoryNotFoundError), "the hub has no model 'a/b'"),
        (http(errors.HfHubHTTPError), "the hub refuses 'a/b' .*from the hub"),
        (errors.LocalEntryNotFoundError("offline"), "isn't on this machine and the hub can't be reached"),
        (errors.OfflineModeIsEnabled("offline"), "isn't on this machine and the hub can't be reached"),
        (errors.HFValidationError("--"), "no file or folder here and no hub id"),
        (OSError(28, "No space left on device"), "can't be stored .*No space left on device"),
        (RuntimeError("stream closed"), "download of 'a/b' broke off .*stream closed"),
    ],
)
def test_each_failure_says_what_is_wrong(error: Exception, complaint: str, answer: Callable[[Answer], None]) -> None:
    def hub_fails(hub_id: str, **options: Any) -> str:
        raise error

    answer(hub_fails)
    with pytest.raises(ModelLoadError, match=complaint):
        load_model("a/b")


@pytest.mark.parametrize("name", ["nowhere", "a/b/c", "./a/b", "https://x/y", "a/", "some folder/x"])
def test_what_is_no_hub_id_is_not_asked_for(name: str, answer: Callable[[Answer], None]) -> None:
    def hub_answers(hub_id: str, **options: Any) -> str:
        raise AssertionError("the hub was asked")

    answer(hub_answers)
    with pytest.raises(ModelLoadError, match="no file or folder here and no hub id"):
        load_model(name)


def test_offline_and_not_there_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def offline(hub_id: str, **options: Any) -> Any:
        return snapshot_download(hub_id, cache_dir=tmp_path, local_files_only=True, **options)

    monkeypatch.setattr(hub, "snapshot_download", offline)
    with pytest.raises(ModelLoadError, match="hub can't be reached"):
        load_model("someone/absent")
