"""An alignment knows where in its prediction the output is, and finds it again after a deviation."""

from collections.abc import Sequence

import pytest

from mtplx.engine.drafters.alignment import TRUSTED, Alignment, num_foreseen

TEN = tuple(range(10))


def after(prediction: Sequence[int], output: Sequence[int]) -> Alignment:
    alignment = Alignment(prediction)
    for token in output:
        alignment.append(token)
    return alignment


def test_the_output_is_expected_to_begin_as_predicted() -> None:
    alignment = after(TEN, [])
    assert alignment.following(3) == (0, 1, 2)
    assert alignment.agreement >= TRUSTED


def test_an_output_as_predicted_is_followed_to_the_end() -> None:
    for length in range(11):
        assert after(TEN, TEN[:length]).following(4) == TEN[length : length + 4]
        assert after(TEN, TEN[:length]).agreement == TRUSTED + length


@pytest.mark.parametrize(
    "output",
    [
        [0, 1, 2, 50, 4, 5],  # one replaced
        [0, 1, 2, 50, 51, 52, 53, 4, 5],  # more of them
        [0, 1, 2, 50, 51, 3, 4, 5],  # some put in
        [0, 1, 4, 5],  # some left out
        [50, 51, 4, 5],  # another beginning
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 50, 51, 4, 5],  # once more after the end
    ],
)
def test_two_tokens_suffice_to_come_back(output: list[int]) -> None:
    alignment = after(TEN, output)
    assert alignment.following(3) == (6, 7, 8)
    assert alignment.agreement >= 2


def test_after_a_deviation_one_token_is_taken_to_have_been_replaced() -> None:
    alignment = after(TEN, [0, 1, 50])
    assert (alignment.following(2), alignment.agreement) == ((3, 4), 0)
    alignment.append(3)
    assert (alignment.following(2), alignment.agreement) == ((4, 5), 1)


def test_after_a_second_deviation_nothing_is_guessed() -> None:
    assert after(TEN, [0, 1, 50, 51]).following(2) == ()
    assert after(TEN, [0, 1, 50, 51, 52]).following(2) == ()


def test_nothing_follows_after_the_end_or_without_a_prediction() -> None:
    assert after(TEN, [*TEN, 50]).following(2) == ()
    assert after((), [1, 2, 3]).following(2) == ()


RECORDS = [token for value in range(100, 120) for token in (1, 2, 3, value)]


def test_words_that_recur_lead_to_the_next_place_ahead() -> None:
    """Not to the latest, nor to the first: the values of records are told from one another by where the output is."""
    assert after(RECORDS, [*RECORDS[:43], 998, 999, 1, 2]).following(2) == (3, 111)
    assert after(RECORDS, [*RECORDS[:43], 998, 999, 2, 3]).following(1) == (110,)


def test_a_place_found_by_a_few_tokens_is_not_trusted_until_more_agree() -> None:
    """Where such a place was wrong, the search begins again from where the output was last followed."""
    prediction = [*range(10), 20, 21, 30, 40, 41, 42, 31, 20, 21, 32]
    output = [*range(10), 90, 91, 40, 41, 42, 92]  # 40, 41 was a wrong place to be: it goes on otherwise
    assert after(prediction, [*output, 20, 21]).following(1) == (30,)


def test_of_several_places_the_one_that_agrees_longest_counts_though_another_is_nearer() -> None:
    prediction = [0, 1, 2, 3, 8, 5, 6, 40, 4, 5, 6, 41]
    assert after(prediction, [0, 1, 2, 50, 4, 5, 6]).following(1) == (41,)
    assert after(prediction, [0, 1, 2, 50, 5, 6]).following(1) == (40,)


def test_a_place_behind_is_found_when_there_is_none_ahead() -> None:
    assert after(TEN, [*TEN[:9], 50, 1, 2]).following(2) == (3, 4)


def test_a_search_looks_at_a_bounded_number_of_places() -> None:
    """However often a pair recurs: the first 16 places ahead are compared, and one beyond them isn't found."""
    recurring = [token for value in range(100, 200) for token in (1, 2, value)]
    assert after([7, 1, 9, *recurring[:30], 7, 1, 2, 300], [7, 1, 2]).following(1) == (300,)
    assert after([7, 1, 9, *recurring, 7, 1, 2, 300], [7, 1, 2]).following(1) == (100,)


def test_tokens_are_foreseen_where_the_prediction_had_them() -> None:
    assert num_foreseen(TEN, TEN) == 10
    assert num_foreseen(TEN, [*range(5), 50, *range(6, 10)]) == 9
    assert num_foreseen(TEN, [50, 51, 52, 53]) == 0
    assert num_foreseen(TEN, []) == 0


def test_no_more_tokens_are_foreseen_than_the_prediction_has() -> None:
    assert num_foreseen((1, 2), [1, 2] * 10) <= 2
