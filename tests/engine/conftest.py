"""What all tests of the engine share."""

import pytest
from hypothesis import settings

from tests.engine.kinds import TinyModels

# A slow machine is no reason to fail.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    """Tiny models by kind."""
    return TinyModels(tmp_path_factory.mktemp("models"))
