"""The mathematics of sampling and acceptance, by the names the original project gave them."""

from mtplx.engine.acceptance import acceptance_probability, speculative_output_marginal, verify_one_token
from mtplx.engine.sampling import sample_from_distribution

__all__ = [
    "acceptance_probability",
    "sample_from_distribution",
    "speculative_output_marginal",
    "verify_one_token",
]
