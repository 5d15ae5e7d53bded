"""For tests of native kernels, which are skipped, with the reason told, where there are none."""

import pytest

from mtplx.kernels.native_module import why_unavailable

_reason = why_unavailable()
needs_native = pytest.mark.skipif(_reason is not None, reason=str(_reason))
