"""Runs as a benchmark measures them, with what a test cares about."""

from mtplx.engine.types import PLAIN, Depth
from mtplx.server.bench.cells import Cell
from mtplx.server.bench.measuring import Run

GREEDY = Cell(PLAIN, 0, 0.0)


def drafted(depth: Depth = 3, temperature: float = 0.0, drafter: str = "ngram") -> Cell:
    return Cell(drafter, depth, temperature)


def run(
    cell: Cell,
    decode_s: float = 1.0,
    *,
    prompt: str = "1",
    category: str = "copy",
    repeat: int = 0,
    num_rounds: int = 4,
    drafted_at: tuple[int, ...] = (),
    accepted_at: tuple[int, ...] = (),
    tokens: tuple[int, ...] = (1, 2, 3, 4),
    text: str = "abcd",
) -> Run:
    """Half of the decoding time is verifying and a tenth drafting."""
    return Run(
        prompt=prompt,
        category=category,
        repeat=repeat,
        cell=cell,
        num_prompt_tokens=5,
        prefill_s=0.25,
        first_token_s=0.5,
        decode_s=decode_s,
        draft_s=decode_s / 10,
        verify_s=decode_s / 2,
        num_rounds=num_rounds,
        drafted_at=drafted_at,
        accepted_at=accepted_at,
        tokens=tokens,
        text=text,
    )
