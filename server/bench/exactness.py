"""Whether speculation changed a text that it must not change. Pure."""

from collections.abc import Sequence

from mtplx.engine.errors import EngineError
from mtplx.engine.types import Acceptance
from mtplx.server.bench.measuring import Run

_SHOWN = 60  # characters of each text


class NotExactError(EngineError):
    """A text differs from what plain decoding gave."""


def pairs_to_compare(runs: Sequence[Run], acceptance: Acceptance) -> list[tuple[Run, Run]]:
    """Each run that must give the tokens of plain decoding, beside the plain one.

    These are the greedy ones; with the rule "coupled" all, since there a seed fixes the text.
    """
    plain = {(run.prompt, run.repeat, run.cell): run for run in runs if run.cell.is_plain}
    return [
        (run, plain[run.prompt, run.repeat, run.cell.plain()])
        for run in runs
        if not run.cell.is_plain and (run.cell.temperature == 0 or acceptance == "coupled")
    ]


def check_exact(runs: Sequence[Run], acceptance: Acceptance) -> int:
    """How many runs gave the same tokens as plain decoding: all that must. Raises NotExactError, which shows the first
    difference, if one did not."""
    pairs = pairs_to_compare(runs, acceptance)
    for run, plain in pairs:
        if run.tokens != plain.tokens:
            raise NotExactError(_difference(run, plain))
    return len(pairs)


def _difference(run: Run, plain: Run) -> str:
    index = _common_length(run.tokens, plain.tokens)
    start = max(0, _common_length(run.text, plain.text) - _SHOWN // 2)
    return (
        f"not exact: prompt {run.prompt}, {run.cell}: output token {index + 1} differs from plain decoding's\n"
        f"  plain: {plain.text[start : start + _SHOWN]!r}\n"
        f"  here:  {run.text[start : start + _SHOWN]!r}"
    )


def _common_length(one: Sequence[object], other: Sequence[object]) -> int:
    """How many items the two have in common from their start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))
