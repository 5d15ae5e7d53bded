"""The two halves of a speculative step, by the names the original project gave them."""

from mtplx.engine.acceptance import verify_one_token
from mtplx.engine.drafters.base import generate_draft

__all__ = ["generate_draft", "verify_one_token"]
