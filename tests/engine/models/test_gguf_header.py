"""The header of a GGUF file reads as its own Python package wrote it, and damage is told apart from a wrong file."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from mtplx.engine.errors import ModelLoadError
from mtplx.engine.models.gguf_header import GgufHeader, TensorInfo, read_header
from tests.tiny_gguf import finish


def write(path: Path) -> GgufHeader:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("small", 200)
    writer.add_int64("negative", -(2**40))
    writer.add_float64("precise", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("words", "naïve 🦜")
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("texts", ["", "Ġthe", "é"])
    writer.add_array("halves", [0.5, 1.5])
    writer.add_tensor("matrix", np.zeros((3, 32), np.float16))
    data = gguf.quants.quantize(np.zeros((2, 64), np.float32), gguf.GGMLQuantizationType.Q4_1)
    writer.add_tensor("packed", data, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    finish(writer)
    return read_header(path)


def test_metadata_has_the_values_written(tmp_path: Path) -> None:
    assert write(tmp_path / "a.gguf").metadata == {
        "general.architecture": "llama",
        "small": 200,
        "negative": -(2**40),
        "precise": 0.1,
        "yes": True,
        "words": "naïve 🦜",
        "numbers": [1, -2, 3],
        "texts": ["", "Ġthe", "é"],
        "halves": [0.5, 1.5],
    }


def test_tensors_have_their_shape_in_the_order_of_mlx_and_their_type_by_name(tmp_path: Path) -> None:
    assert write(tmp_path / "a.gguf").tensors == {
        "matrix": TensorInfo("matrix", (3, 32), "F16"),
        "packed": TensorInfo("packed", (2, 64), "Q4_1"),
    }


def test_values_are_asked_for_by_kind(tmp_path: Path) -> None:
    header = write(tmp_path / "a.gguf")
    assert header.require("small", int) == 200
    assert header.require("small", float) == 200.0
    assert header.get("missing", 7) == 7
    assert header.require_list("texts", str) == ["", "Ġthe", "é"]


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda header: header.require("missing", int), "lacks the metadata 'missing'"),
        (lambda header: header.require("words", int), "'words' is 'naïve 🦜', expected int"),
        (lambda header: header.get("words", 1), "expected int"),
        (lambda header: header.require_list("missing", str), "lacks the metadata 'missing'"),
        (lambda header: header.require_list("numbers", str), "'numbers' is not a list of str"),
        (lambda header: header.require_list("words", str), "'words' is not a list of str"),
    ],
)
def test_a_missing_or_wrong_value_is_named(ask, complaint: str, tmp_path: Path) -> None:
    header = write(tmp_path / "a.gguf")
    with pytest.raises(ModelLoadError, match=complaint):
        ask(header)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty, cut off or damaged"),
        (b"PK\x03\x04 a zip file, say", "is not a GGUF file"),
        (b"GGUF\x01\x00\x00\x00", "version 1; versions 2 and 3 are supported"),
        (b"GGUF\x03\x00\x00\x00\x01", "is empty, cut off or damaged"),
    ],
)
def test_what_is_not_a_whole_gguf_file_is_refused(content: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(content)
    with pytest.raises(ModelLoadError, match=complaint):
        read_header(tmp_path / "a.gguf")


def test_a_header_cut_off_anywhere_is_called_damaged(tmp_path: Path) -> None:
    write(tmp_path / "a.gguf")
    whole = (tmp_path / "a.gguf").read_bytes()
    for length in range(8, whole.index(b"packed"), 7):
        (tmp_path / "b.gguf").write_bytes(whole[:length])
        with pytest.raises(ModelLoadError, match="cut off or damaged"):
            read_header(tmp_path / "b.gguf")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"there is no file .*nowhere\.gguf"):
        read_header(tmp_path / "nowhere.gguf")
