"""What all tests of the engine share."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from mtplx.kernels.inputs import float_inputs
from tests.engine.kinds import TinyModels

# A slow machine is no reason to fail.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    """Tiny models by kind."""
    return TinyModels(tmp_path_factory.mktemp("models"))


@pytest.fixture
def float_products() -> Iterator[None]:
    """Nothing is rounded, for comparisons with what computes in another order: that may tip a rounding over."""
    with float_inputs():
        yield
