"""`mtplx generate`: one text on the terminal, as it is decoded, and how that went.

Knows terminals. Decoding is the session's affair.
"""

import io
import sys
import time
from collections.abc import Iterable

from mtplx.engine.session import EngineSession, GenerationConfig, Piece

_ACCEPTED = "\x1b[32m"  # green
_RESET = "\x1b[0m"


def generate(config: GenerationConfig, prompt: str, *, chat: bool, show_drafts: bool) -> None:
    """Print what follows `prompt`, or the answer to it if `chat`. Raises EngineError."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the model may write what the terminal cannot
    with EngineSession(config) as session:
        started_at_s = time.monotonic()
        _print(session.generate_pieces([{"role": "user", "content": prompt}] if chat else prompt), show_drafts)
        print(_summary(session, time.monotonic() - started_at_s), file=sys.stderr)


def _print(pieces: Iterable[Piece], show_drafts: bool) -> None:
    for piece in pieces:
        coloured = show_drafts and piece.accepted_draft
        print(f"{_ACCEPTED}{piece.text}{_RESET}" if coloured else piece.text, end="", flush=True)
    print()


def _summary(session: EngineSession, elapsed_s: float) -> str:
    stats, num_tokens = session.stats, session.num_output
    return (
        f"{num_tokens} tokens in {elapsed_s:.1f} s, prompt included ({num_tokens / elapsed_s:.1f} tokens/s); "
        f"{stats.num_accepted} of {stats.num_drafted} draft tokens accepted ({stats.acceptance_rate:.0%}); "
        f"{num_tokens / stats.num_rounds:.2f} tokens per round"
    )
