"""The names a user of the library imports, and what importing them costs."""

import subprocess
import sys

import pytest

import mtplx

MODEL_CODE = {"mlx.nn", "mlx_lm", "transformers"}
SERVER = {"fastapi", "mtplx.server", "uvicorn"}


def modules_loaded_by(statement: str) -> set[str]:
    """The modules a fresh interpreter holds after running `statement`."""
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout
    return set(output.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import mtplx",
        "import mtplx.sampling",
        "from mtplx import acceptance_probability, sample_from_distribution",
        "from mtplx import speculative_output_marginal, verify_one_token",
    ],
)
def test_the_mathematics_imports_without_mlx_and_without_the_server(statement: str) -> None:
    assert not modules_loaded_by(statement) & {"mlx", *MODEL_CODE, *SERVER}


@pytest.mark.parametrize("statement", ["import mtplx.speculative", "from mtplx import generate_draft"])
def test_drafting_imports_without_model_code_and_without_the_server(statement: str) -> None:
    assert not modules_loaded_by(statement) & {*MODEL_CODE, *SERVER}


def test_the_server_can_answer_before_mlx_is_loaded() -> None:
    assert not modules_loaded_by("import mtplx.server.app") & {"mlx", *MODEL_CODE}


def test_importing_the_package_loads_nothing_of_the_engine() -> None:
    assert {name for name in modules_loaded_by("import mtplx") if name.startswith("mtplx")} == {"mtplx"}


def test_a_heavy_import_would_be_noticed() -> None:
    assert {"mlx", "mlx.nn"} <= modules_loaded_by("import mlx.nn")


@pytest.mark.parametrize("name", mtplx.__all__)
def test_every_public_name_is_there_and_listed(name: str) -> None:
    assert getattr(mtplx, name) is not None
    assert name in dir(mtplx)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        mtplx.no_such_name  # noqa: B018


def test_public_functions_are_one_object_under_all_their_names() -> None:
    from mtplx import sampling, speculative

    assert sampling.acceptance_probability is mtplx.acceptance_probability
    assert sampling.sample_from_distribution is mtplx.sample_from_distribution
    assert sampling.speculative_output_marginal is mtplx.speculative_output_marginal
    assert sampling.verify_one_token is mtplx.verify_one_token is speculative.verify_one_token
    assert speculative.generate_draft is mtplx.generate_draft
