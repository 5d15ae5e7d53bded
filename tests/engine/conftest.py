"""What all tests of the engine share."""

from hypothesis import settings

# A slow machine is no reason to fail.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
