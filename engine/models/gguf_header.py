"""The header of a GGUF file: its metadata, and the name, shape and type of each tensor.

Knows the file format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3. Reads no weights
and knows no architecture.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from mtplx.engine.errors import ModelLoadError

Scalar: TypeAlias = bool | int | float | str
MetadataValue: TypeAlias = Scalar | list[Scalar]
Kind = TypeVar("Kind", bound=Scalar)

SCALAR_FORMATS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
STRING = 8
ARRAY = 9

TENSOR_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    30: "BF16",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
}


@dataclass(frozen=True)
class TensorInfo:
    """One tensor; `shape` is in the order of MLX, the last dimension contiguous."""

    name: str
    shape: tuple[int, ...]
    type_name: str


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says of itself."""

    path: Path
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, TensorInfo]

    def get(self, key: str, default: Kind) -> Kind:
        """A scalar of the metadata, of the default's type. Raises ModelLoadError if it has another type."""
        if key not in self.metadata:
            return default
        return self.require(key, type(default))

    def require(self, key: str, kind: type[Kind]) -> Kind:
        """A scalar of the metadata. Raises ModelLoadError if it is missing or not of this kind."""
        value = self.metadata.get(key)
        if value is None:
            raise ModelLoadError(f"{self.path} lacks the metadata '{key}'; convert the model to GGUF again")
        if kind is float and isinstance(value, int):
            value = float(value)
        if not isinstance(value, kind):
            raise ModelLoadError(f"{self.path}: the metadata '{key}' is {value!r}, expected {kind.__name__}")
        return value

    def require_list(self, key: str, kind: type[Kind]) -> list[Kind]:
        """A list of the metadata. Raises ModelLoadError if it is missing or its items are not of this kind."""
        value = self.metadata.get(key)
        if value is None:
            raise ModelLoadError(f"{self.path} lacks the metadata '{key}'; convert the model to GGUF again")
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise ModelLoadError(f"{self.path}: the metadata '{key}' is not a list of {kind.__name__}")
        return [item for item in value if isinstance(item, kind)]


def read_header(path: Path) -> GgufHeader:
    """The header of the file at `path`. Raises ModelLoadError if there is none or it is damaged."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(path, data)
    except FileNotFoundError:
        raise ModelLoadError(f"there is no file {path}; check the path") from None
    except OSError as error:
        raise ModelLoadError(f"{path} can't be read: {error.strerror or error}") from error
    except (ValueError, struct.error, UnicodeDecodeError) as error:
        raise ModelLoadError(f"{path} is empty, cut off or damaged ({error}); download it again") from error


def _parse(path: Path, data: mmap.mmap) -> GgufHeader:
    if data[:4] != b"GGUF":
        raise ModelLoadError(f"{path} is not a GGUF file: it doesn't begin with 'GGUF'")
    reader = _Reader(data, offset=4)
    version = reader.integer("I")
    if version not in (2, 3):
        raise ModelLoadError(f"{path} is a GGUF file of version {version}; versions 2 and 3 are supported")
    num_tensors, num_keys = reader.integer("Q"), reader.integer("Q")
    metadata = {reader.string(): reader.value(reader.integer("I")) for _ in range(num_keys)}
    tensors = [reader.tensor() for _ in range(num_tensors)]
    return GgufHeader(path, metadata, {tensor.name: tensor for tensor in tensors})


class _Reader:
    """A place in the header, moving forward as values are read."""

    def __init__(self, data: mmap.mmap, offset: int) -> None:
        self._data = data
        self._offset = offset

    def integer(self, code: str) -> int:
        return int(self._unpack(code)[0])

    def string(self) -> str:
        return self._take(self.integer("Q")).decode()

    def value(self, kind: int) -> MetadataValue:
        if kind == ARRAY:
            kind, length = self.integer("I"), self.integer("Q")
            if kind == STRING:
                return [self.string() for _ in range(length)]
            return list(self._unpack(f"{length}{_scalar_format(kind)}"))
        if kind == STRING:
            return self.string()
        return self._unpack(_scalar_format(kind))[0]

    def tensor(self) -> TensorInfo:
        name = self.string()
        dimensions = self._unpack(f"{self.integer('I')}Q")
        type_id = self.integer("I")
        self._unpack("Q")  # the offset of its data
        type_name = TENSOR_TYPES.get(type_id, f"number {type_id}")
        return TensorInfo(name, tuple(int(size) for size in reversed(dimensions)), type_name)

    def _unpack(self, code: str) -> tuple[Scalar, ...]:
        return struct.unpack("<" + code, self._take(struct.calcsize("<" + code)))

    def _take(self, num_bytes: int) -> bytes:
        end = self._offset + num_bytes
        if end > len(self._data):
            raise ValueError("the header ends early")
        taken = self._data[self._offset : end]
        self._offset = end
        return taken


def _scalar_format(kind: int) -> str:
    if kind not in SCALAR_FORMATS:
        raise ValueError(f"unknown metadata type {kind}")
    return SCALAR_FORMATS[kind]
