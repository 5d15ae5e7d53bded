"""Packing: every pair that has something to foresee is learnt from once, and knows what it is to foresee."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtplx.engine.training.pieces import Piece, batches, cut, wanted_pairs
from mtplx.engine.training.texts import Text

TEXTS = st.lists(
    st.integers(0, 40).flatmap(lambda size: st.integers(0, size).map(lambda given: Text((5,) * size, given))),
    max_size=8,
)


@given(TEXTS, st.integers(1, 12))
def test_a_pair_is_in_a_piece_once_if_it_has_a_token_to_foresee_and_pieces_are_short(
    texts: list[Text], most_pairs: int
) -> None:
    pieces = cut(texts, most_pairs)
    pairs = Counter((piece.text, pair) for piece in pieces for pair in range(piece.start, piece.stop))
    assert all(times == 1 for times in pairs.values())
    assert all(0 < piece.num_pairs <= most_pairs for piece in pieces)
    for number, text in enumerate(texts):
        # Token t is foreseen from pair t − 2, and the target tells of it in row t − 1.
        foreseeing = {token - 2 for token in range(max(2, text.num_given), len(text.tokens))}
        assert foreseeing <= {pair for name, pair in pairs if name == number}


def test_a_prompt_that_fills_a_piece_is_not_learnt_from() -> None:
    assert cut([Text(tuple(range(20)), 15)], 6) == [Piece(0, 12, 18)]


def test_each_piece_is_in_one_batch_of_an_epoch() -> None:
    pieces = [Piece(number, 0, 1 + 7 * number % 90) for number in range(50)]
    packed = batches(pieces, 200, seed=1, epoch=0)
    assert sorted(piece.text for batch in packed for piece in batch) == list(range(50))


def test_a_batch_filled_up_to_its_longest_piece_is_within_the_size() -> None:
    pieces = [Piece(number, 0, 1 + 7 * number % 90) for number in range(50)]
    packed = batches(pieces, 200, seed=1, epoch=0)
    assert all(len(batch) * max(piece.num_pairs for piece in batch) <= 200 for batch in packed)
    assert batches([Piece(0, 0, 300)], 200, seed=0, epoch=0) == [[Piece(0, 0, 300)]]


def test_pieces_in_a_batch_are_of_much_the_same_length() -> None:
    pieces = [Piece(number, 0, length) for number, length in enumerate([10, 400] * 20)]
    for batch in batches(pieces, 800, seed=3, epoch=0)[:-1]:
        lengths = {piece.num_pairs for piece in batch}
        assert len(lengths) == 1 or len(batch) < 4


def test_seed_and_epoch_decide_the_order() -> None:
    pieces = [Piece(number, 0, 10) for number in range(50)]
    assert batches(pieces, 40, seed=1, epoch=0) == batches(pieces, 40, seed=1, epoch=0)
    others = [batches(pieces, 40, seed=1, epoch=1), batches(pieces, 40, seed=2, epoch=0)]
    assert all(other != batches(pieces, 40, seed=1, epoch=0) for other in others)


@pytest.mark.parametrize("piece", [Piece(0, 0, 8), Piece(0, 3, 6)])
def test_a_step_is_judged_where_it_foresees_a_written_token_that_the_target_tells_of(piece: Piece) -> None:
    text = Text(tuple(range(10)), 4)
    wanted = wanted_pairs(piece, text, num_steps=3, length=8)
    for step in range(3):
        for place in range(8):
            token = piece.start + place + 2 + step
            expected = 4 <= token <= 9 and piece.start + place < piece.stop
            assert wanted[step, place] == expected
    assert wanted.dtype == np.bool_
