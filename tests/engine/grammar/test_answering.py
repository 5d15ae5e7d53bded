"""A grammar for the answer leaves thoughts free, and holds from their end on."""

from mtplx.engine.grammar.answering import AnswerGrammar, ThoughtMarks
from tests.engine.grammars import Automaton

EOS, THINK, END, DOT = 0, 5, 6, 7
ANSWER = Automaton(8, {0: {1: 1}, 1: {2: 2}, 2: {EOS: 2}})  # 1, then 2, then the end
MARKS = ThoughtMarks((THINK,), (END,), frozenset({EOS}))


def tokens(grammar: AnswerGrammar) -> set[int]:
    return {token for token, allowed in enumerate(grammar.allowed()) if allowed}


def after(grammar: AnswerGrammar, *text: int) -> AnswerGrammar:
    for token in text:
        grammar = grammar.after(token)
    return grammar


def test_an_answer_without_a_thought_keeps_to_the_grammar() -> None:
    start = AnswerGrammar(ANSWER, MARKS, "start")
    assert tokens(start) == {1, THINK}
    assert tokens(after(start, 1)) == {2}
    assert tokens(after(start, 1, 2)) == {EOS}


def test_a_thought_may_be_anything_but_the_end_of_the_text() -> None:
    within = after(AnswerGrammar(ANSWER, MARKS, "start"), THINK)
    assert tokens(within) == {1, 2, 3, 4, THINK, END, DOT}
    assert tokens(after(within, 4, 2, 2, THINK)) == tokens(within)


def test_the_grammar_holds_from_the_end_of_the_thought_on() -> None:
    answer = after(AnswerGrammar(ANSWER, MARKS, "within"), 4, 2, END)
    assert tokens(answer) == {1}
    assert answer.forced()[:2] == (1, 2)
    assert tokens(after(answer, 1)) == {2}


def test_nothing_is_forced_within_a_thought() -> None:
    assert AnswerGrammar(ANSWER, MARKS, "within").forced() == ()


def test_an_end_mark_of_several_tokens_is_known_by_all_of_them() -> None:
    within = AnswerGrammar(ANSWER, ThoughtMarks((THINK,), (END, DOT), frozenset({EOS})), "within")
    assert after(within, END, 3, DOT).place == "within"
    assert after(within, END, END, DOT).place == "answer"


def test_a_thought_that_takes_several_tokens_to_begin_is_not_begun() -> None:
    start = AnswerGrammar(ANSWER, ThoughtMarks((THINK, DOT), (END,), frozenset({EOS})), "start")
    assert tokens(start) == {1}


def test_going_on_changes_no_earlier_place() -> None:
    start = AnswerGrammar(ANSWER, MARKS, "start")
    before = start.allowed().copy()
    after(start, THINK, 3, END, 1)
    assert (start.allowed() == before).all()
