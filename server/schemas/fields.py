"""What the bodies of requests are made of: their base, kinds of numbers, and how a problem in a field is told.

Knows pydantic, and OpenAI's codes for what is wrong. Knows no field by name.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from mtplx.server.excerpts import excerpt, listing

# Numbers that are counted with here end below this, as OpenAI's do; those beyond could not even be printed.
END_OF_INTEGERS = 2**31
_MAX_ENTRIES = 16  # as OpenAI has it of metadata

Natural: TypeAlias = Annotated[int, Field(ge=0, lt=END_OF_INTEGERS)]
PositiveInt: TypeAlias = Annotated[int, Field(ge=1, lt=END_OF_INTEGERS)]


def invalid(message: str, code: str = "invalid_value", *, at: str = "") -> PydanticCustomError:
    """What is wrong, in OpenAI's code for it, and `at` which place within what is being validated."""
    return PydanticCustomError("invalid", "{message}", {"message": message, "code": code, "at": at})


def refuse_unknown(fields: Iterable[object], known: Container[Any], *, at: str = "") -> None:
    unknown = [str(name) for name in fields if name not in known]
    if unknown:
        message = f"unknown field{'s' * (len(unknown) > 1)}: {listing(unknown)}"
        raise invalid(message, "unknown_parameter", at=f"{at}.{excerpt(unknown[0])}")


def _is_empty(value: object) -> object:
    if value not in (None, [], {}):
        raise invalid("is not supported by this server", "unsupported_parameter")
    return value


def _is_short(value: object) -> object:
    if isinstance(value, Mapping) and len(value) > _MAX_ENTRIES:
        raise invalid(f"at most {_MAX_ENTRIES} entries are allowed")
    return value


ShortMap: TypeAlias = Annotated[dict[str, str], BeforeValidator(_is_short)]
Unused: TypeAlias = Annotated[Any, AfterValidator(_is_empty)]


def _tell_unsupported(schema: dict[str, Any], kind: type["Body"]) -> None:
    for name, harmless in kind.UNSUPPORTED.items():
        schema["properties"][name] = {"description": "Not supported.", "enum": [None, *harmless]}


class Body(BaseModel):
    """`UNSUPPORTED` are fields that are refused by name, unless they have one of the values that change nothing."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, json_schema_extra=_tell_unsupported
    )

    UNSUPPORTED: ClassVar[Mapping[str, tuple[object, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _has_known_fields_only(cls, fields: object) -> object:
        # Left to pydantic, each of a million unknown fields would become a problem of its own.
        if isinstance(fields, Mapping):
            refuse_unknown(fields, {field.alias or name for name, field in cls.model_fields.items()})
        return fields
