"""Kernels are compared with what they must equal, so nothing is rounded but where a test asks for it."""

from collections.abc import Iterator

import pytest

from mtplx.kernels.inputs import float_inputs


@pytest.fixture(autouse=True)
def float_products() -> Iterator[None]:
    """Whatever an engine chose for this process before."""
    with float_inputs():
        yield
