"""Every kind of grammar is kept to; what cannot be is refused in time, with the reason and a remedy."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtplx.engine.errors import EngineError, InvalidRequestError
from mtplx.engine.grammar.compiler import MAX_CHARACTERS, MAX_CHOICES, GrammarCompiler
from mtplx.engine.grammar.spec import GrammarKind, GrammarSpec
from mtplx.engine.types import Grammar
from tests.engine.grammar.vocabularies import VOCAB_SIZE, byte_pairs
from tests.tiny_models import EOS

TOKENIZER = byte_pairs()
COMPILER = GrammarCompiler(TOKENIZER, VOCAB_SIZE)


def accepts(grammar: Grammar, text: str) -> bool:
    """Whether the whole output may be `text`, cut as the grammar wants it."""
    left = text.encode()
    while left:
        tokens = np.flatnonzero(grammar.allowed()).tolist()
        fitting = [token for token in tokens if token != EOS and left.startswith(TOKENIZER.bytes_of(token))]
        if not fitting:
            return False
        token = max(fitting, key=lambda token: len(TOKENIZER.bytes_of(token)))
        grammar, left = grammar.after(token), left[len(TOKENIZER.bytes_of(token)) :]
    return bool(grammar.allowed()[EOS])


POINT = json.dumps({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})


@pytest.mark.parametrize(
    ("kind", "value", "kept", "broken"),
    [
        ("regex", r"\d[\d.]{2}\w", ["12.a", "9.._"], ["\u0661\u0662.a", "12.\u00e9"]),
        ("regex", r"\D\\d\W", [r"a\d-"], ["1\\d-", "a5-", r"a\dx"]),
        ("json_object", "", ["{}", '{"a": [1, null]}', '{\n  "a": {"b": "é"}\n}'], ["[]", "1", '{"a": }', "{", " {}"]),
        ("json_schema", POINT, ['{"x": 1}', '{"x":-20, "y": []}'], ["{}", '{"x": 1.5}', '{"y": 1}']),
        ("json_schema", "{}", ["{}", "[1]", '"a"'], ["", "a"]),
        ("regex", r"[a-c]+/\d{2}", ["a/12", "abc/00"], ["/12", "a/1", "a/123"]),
        ("choice", ("yes", "no/*", ".+"), ["yes", "no/*", ".+"], ["y", "yesno", "aa", ""]),
        ("choice", ("", "x\x7f\u2028\\x41"), ["", "x\x7f\u2028\\x41"], ["x", "xA"]),
        ("grammar", 'start: "<" start ">" | "x"', ["x", "<<x>>"], ["<x", "<x>>", ""]),
        ("grammar", 'root ::= "<" root ">" | [xy]+', ["xyx", "<<y>>"], ["<x", "<x>>", ""]),
    ],
)
def test_output_keeps_to_it(
    kind: GrammarKind, value: str | tuple[str, ...], kept: list[str], broken: list[str]
) -> None:
    grammar = COMPILER.compile(GrammarSpec(kind, value))
    assert [text for text in kept if not accepts(grammar, text)] == []
    assert [text for text in broken if accepts(grammar, text)] == []


def test_white_space_in_json_comes_to_an_end() -> None:
    grammar = COMPILER.compile(GrammarSpec("json_object"))
    assert accepts(grammar, "{" + 40 * " " + "}")
    assert not accepts(grammar, "{" + 41 * " " + "}")


def test_a_schema_may_say_by_itself_what_white_space_there_is() -> None:
    schema = {"enum": [{"a": 1}], "x-guidance": {"whitespace_flexible": False}}
    grammar = COMPILER.compile(GrammarSpec("json_schema", json.dumps(schema)))
    assert accepts(grammar, '{"a":1}')
    assert not accepts(grammar, '{"a": 1}')


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("json_schema", '{"type": "objekt"}', "Invalid type: objekt; leave out"),
        ("json_schema", '{"not": {}}', 'Unimplemented keys: ["not"]'),
        ("json_schema", '{"type": "string", "format": "postcode"}', "Unknown format"),
        ("json_schema", '{"oneOf": [{"type": "string"}, {"const": "a"}]}', "oneOf"),
        ("json_schema", '{"$ref": "https://example.com/"}', "does not fetch"),
        ("json_schema", '{"allOf": [{"type": "string"}, {"type": "integer"}]}', "Unsatisfiable"),
        ("json_schema", "[", "the JSON schema cannot be kept to"),
        ("json_schema", "[1]", "the JSON schema cannot be kept to"),
        ("regex", "(a", "unclosed group"),
        ("regex", "(?=a)b", "look-around"),
        ("regex", r"(a)\1", "backreferences are not supported"),
        ("regex", r"[^\s\S]", "NoExtensionBias"),
        ("regex", "\ud800", "surrogates not allowed"),
        ("choice", (), "there are 0 choices"),
        ("choice", ("a",) * (MAX_CHOICES + 1), f"from 1 to {MAX_CHOICES}"),
        ("grammar", "hello", "a rule named start"),
        ("grammar", "start: other", 'unknown name: "other"'),
        ("grammar", "root ::= (", "Expected"),
        ("grammar", 'start: name "."\nname[max_tokens=3]: /[a-z]*/', "rollback not supported with max_tokens"),
    ],
)
def test_what_cannot_be_kept_to_is_refused_with_the_reason(
    kind: GrammarKind, value: str | tuple[str, ...], reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(reason)) as caught:
        COMPILER.compile(GrammarSpec(kind, value, "the field"))
    assert caught.value.field == "the field"
    assert len(str(caught.value)) < 1000


def nested_schema(depth: int) -> str:
    return '{"properties": {"a": ' * depth + "{}" + "}}" * depth


HOSTILE: dict[str, tuple[GrammarKind, str | tuple[str, ...]]] = {
    "a long expression": ("regex", "a" * (MAX_CHARACTERS + 1)),
    "long choices": ("choice", ("a" * MAX_CHARACTERS, "b")),
    "deep brackets": ("regex", "(" * 5000 + ")" * 5000),
    "deep brackets in a grammar": ("grammar", "root ::= " + "(" * 50_000),
    "a deep schema": ("json_schema", nested_schema(300)),
    "a wide schema": ("json_schema", '{"enum": [' + "1e999," * 30_000 + "1]}"),
}


@pytest.mark.parametrize("spec", HOSTILE.values(), ids=HOSTILE)
def test_what_is_too_much_is_refused(spec: tuple[GrammarKind, str | tuple[str, ...]]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        COMPILER.compile(GrammarSpec(*spec, field="the field"))
    assert caught.value.field == "the field"
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("json_schema", {"allOf": [{"type": "integer", "multipleOf": number} for number in range(1000, 1040)]}),
        ("json_schema", {"properties": {f"p{n}": {"$ref": f"#/properties/p{n + 1}"} for n in range(4000)}}),
        ("grammar", 'root ::= "a"' + " \n" * 90_000),
    ],
    ids=["forever", "a crash", "forever in another notation"],
)
def test_what_the_library_does_not_survive_is_refused_and_the_next_one_compiled(kind: GrammarKind, value: Any) -> None:
    compiler = GrammarCompiler(TOKENIZER, VOCAB_SIZE, timeout_s=1.5)
    with pytest.raises(InvalidRequestError, match="it takes too much to follow"):
        compiler.compile(GrammarSpec(kind, value if isinstance(value, str) else json.dumps(value)))
    assert accepts(compiler.compile(GrammarSpec("choice", ("a", "b"))), "a")


def test_modules_of_the_folder_where_the_server_runs_are_none_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llguidance.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    assert accepts(GrammarCompiler(TOKENIZER, VOCAB_SIZE).compile(GrammarSpec("choice", ("a", "b"))), "a")


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/true"])
def test_that_grammars_cannot_be_checked_is_no_mistake_of_who_asks_for_one(
    python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = GrammarCompiler(TOKENIZER, VOCAB_SIZE)
    with monkeypatch.context() as patched:
        patched.setattr("sys.executable", python)
        for _ in range(2):
            with pytest.raises(EngineError, match="grammars cannot be checked here") as caught:
                compiler.compile(GrammarSpec("json_object"))
            assert not isinstance(caught.value, InvalidRequestError)
    assert accepts(compiler.compile(GrammarSpec("json_object")), "{}")


@pytest.mark.parametrize(
    ("kind", "value", "most_tokens"),
    [
        ("regex", "(.*a.{20}){10}", 10_000),
        ("grammar", 'start: text\ntext: text text text text | text text text | text text | "a" | " " | "b" | ""', 120),
    ],
    ids=["too many states", "too many ways to read it"],
)
def test_what_becomes_too_much_on_the_way_ends_the_text_with_an_error_that_names_the_field(
    kind: GrammarKind, value: str, most_tokens: int
) -> None:
    grammar: Grammar = COMPILER.compile(GrammarSpec(kind, value, "the field"))
    chooser = np.random.default_rng(1)

    def write(num_tokens: int) -> None:
        nonlocal grammar
        for token in chooser.choice(TOKENIZER.encode("a b"), num_tokens):
            grammar = grammar.after(int(token))
            grammar.allowed()

    write(10)
    with pytest.raises(InvalidRequestError, match="make it simpler") as caught:
        write(most_tokens)
    assert caught.value.field == "the field"


def test_threads_may_compile_at_the_same_time() -> None:
    compiler = GrammarCompiler(TOKENIZER, VOCAB_SIZE)
    accepted: dict[int, bool] = {}

    def compile_one(number: int) -> None:
        grammar = compiler.compile(GrammarSpec("choice", (f"number {number}", "none")))
        accepted[number] = accepts(grammar, f"number {number}")

    threads = [threading.Thread(target=compile_one, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert accepted == dict.fromkeys(range(16), True)
