"""Every setting of the server, and where its value comes from.

A value is the default, unless a preset (a TOML file) says otherwise, unless the environment (`MTPLX_<NAME>`) does,
unless a flag does. Knows no command line, no engine: it holds and validates values. The environment is read here and
nowhere else; `MTPLX_` variables that name no setting are left alone, as orchestrators put their own there.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, SettingsConfigDict

DrafterName = Literal["auto", "ngram", "head", "self", "model", "grammar", "none"]
AcceptanceName = Literal["rejection", "block", "coupled"]
Activations = Literal["auto", "float32", "int16", "int8"]
KvCacheType = Literal["auto", "float32"]
LogLevel = Literal["debug", "info", "warning", "error"]

KEY_RULE = "a key must be of printable ASCII characters, without spaces and commas"

Item = TypeVar("Item")

_PRESETS = Path(__file__).parent
_ENV_PREFIX = "MTPLX_"
_KEY = re.compile(r"[!-+\--~]+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s,]+|\*")


class SettingsError(Exception):
    """A setting's value cannot be used. The message names the setting, where the value came from and why."""


def _read_depth(value: object) -> object:
    """The environment and the command line have words only."""
    depth = int(value) if isinstance(value, str) and value.isdecimal() else value
    is_depth = isinstance(depth, int) and not isinstance(depth, bool) and depth >= 0
    if depth != "auto" and not is_depth:
        raise PydanticCustomError("depth", 'Input should be "auto" or a whole number from 0')
    return depth


def _read_list(value: object) -> object:
    """Items that commas separate: in one text, or in each of several, as a repeated flag gives them."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return value
    return tuple(item.strip() for text in texts for item in text.split(","))


def is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def _check_key(key: SecretStr) -> SecretStr:
    if not is_key(key.get_secret_value()):
        raise PydanticCustomError("key", KEY_RULE)
    return key


def _check_origin(origin: str) -> str:
    if not _ORIGIN.fullmatch(origin):
        raise PydanticCustomError("origin", "an origin is like https://example.org or http://localhost:3000, or *")
    return origin


ListOf: TypeAlias = Annotated[tuple[Item, ...], NoDecode, BeforeValidator(_read_list)]
ApiKey = Annotated[SecretStr, AfterValidator(_check_key)]
Origin = Annotated[str, AfterValidator(_check_origin)]


class Settings(BaseSettings):
    """All settings, validated and frozen."""

    model_config = SettingsConfigDict(env_prefix=_ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True)

    preset: str | None = Field(None, description="name of a preset in configs/, or path of a TOML file")
    model: str | None = Field(
        None, description="a .gguf file, an mlx-lm model folder or a hub id; the installed default model if not given"
    )
    served_model_name: str | None = Field(None, min_length=1, description="what clients call the model, if not its id")
    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    api_key: ListOf[ApiKey] = Field(
        (),
        description="a key that clients must know, or several, separated by commas; others can see it on the "
        "command line, but not in the environment or a file",
    )
    api_key_file: Path | None = Field(
        None, description="a file of such keys, one a line; lines that begin with # are comments"
    )
    allow_anonymous: bool = Field(
        False, description="whether to serve without any keys on an address that other machines reach"
    )
    public_metrics: bool = Field(False, description="whether /metrics needs no key where everything else does")
    cors_origin: ListOf[Origin] = Field(
        (),
        description="an origin whose pages in browsers may use the server, or several, separated by commas; * is all",
    )
    speculative_depth: Annotated[int | Literal["auto"], BeforeValidator(_read_depth)] = Field(
        "auto", description="tokens to draft a round when a request does not say; auto chooses by measured gain"
    )
    max_speculative_depth: int = Field(16, ge=0, description="largest depth a request may ask for, and auto chooses")
    drafter: DrafterName = Field("auto", description="who drafts when a request does not say; auto as for the depth")
    acceptance: AcceptanceName | None = Field(
        None,
        description="how drafts are accepted when a request does not say; if not given, rejection, but coupled where a "
        "seed must fix the text whatever auto chooses",
    )
    ngram_pool_tokens: int = Field(
        0,
        ge=0,
        description="tokens of finished texts that the n-gram drafter copies from, for each API key; 0 keeps none",
    )
    self_draft_layers: int | None = Field(
        None, ge=1, description="layers of the model that the self drafter uses; the engine's choice if not given"
    )
    self_draft_bits: int | None = Field(
        None, ge=2, le=8, description="bits of each weight that the self drafter uses; the engine's choice if not given"
    )
    draft_model: str | None = Field(
        None, description="a small model with the same tokenizer for the drafter 'model', named as --model is"
    )
    draft_head: Path | None = Field(
        None,
        description="folder of a draft head made for the model, for the drafter 'head', or none; the one that comes "
        "with the model or with mtplx, if any, if not given",
    )
    max_running: int = Field(8, ge=1, description="requests decoded at a time")
    max_waiting: int = Field(128, ge=0, description="requests that may wait for their turn; more are answered 429")
    prefill_chunk: int | None = Field(
        None, ge=1, description="prompt tokens processed in one go; the engine's choice for the device if not given"
    )
    max_step_rows: int | None = Field(
        None, ge=1, description="rows that one step processes for all requests; the engine's choice if not given"
    )
    cache_memory_mb: int | None = Field(
        None, ge=1, description="memory for the rows of running requests, in MB; a share of the machine's if not given"
    )
    prefix_cache_mb: int | None = Field(
        None,
        ge=0,
        description="memory for rows kept for later requests, in MB; 0 keeps none; a share of the machine's if not "
        "given",
    )
    prefix_cache_dir: Path | None = Field(
        None, description="folder where the rows kept for later requests outlive a restart; nowhere if not given"
    )
    queue_timeout_s: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="seconds that a request may wait for its turn; any if not given"
    )
    request_timeout_s: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="seconds that a request may take, its wait included, even if it asks for more; any if not given",
    )
    threads: int | None = Field(
        None, ge=1, description="CPU threads that the native kernels use; one for each processor if not given"
    )
    native_kernels: bool = Field(True, description="whether to use the native kernels where there are any")
    activations: Activations = Field(
        "auto",
        description="what native kernels multiply quantized weights with: float32, or numbers rounded to int16 or"
        " int8, which is quicker; auto is int16 where the processor has instructions for it, else float32",
    )
    kv_cache_dtype: KvCacheType = Field(
        "auto",
        description="what to keep keys and values as: float32 or, with auto, float16 where decoder layers run in one"
        " native call, which takes half the memory and is quicker",
    )
    max_body_bytes: int = Field(8 * 2**20, ge=1, description="largest request body, in bytes; more is answered 413")
    keep_alive_s: float = Field(
        15.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds between the comments that keep a stream alive; 0 sends none",
    )
    max_stream_buffer: int = Field(
        1024, ge=1, description="updates kept for a client that reads its stream too slowly; with more it is cut off"
    )
    metrics_namespace: str = Field(
        "mtplx", pattern="^[a-zA-Z_][a-zA-Z0-9_]*$", description="prefix of the names in /metrics"
    )
    shutdown_grace_s: float = Field(
        3.0, ge=0, allow_inf_nan=False, description="seconds that open requests get to finish at shutdown"
    )
    exit_on_failure: bool = Field(
        False, description="whether to exit, with status 1, once the engine has failed, instead of saying so to clients"
    )
    log_level: LogLevel = Field("info", description="least severe messages to log")


def load_settings(flags: Mapping[str, object]) -> Settings:
    """Settings from `flags` (field name to value), the environment and the preset that either of them names.

    Raises SettingsError for a value that is not valid, an unknown key, or a preset that cannot be read.
    """
    environment = EnvSettingsSource(Settings)()
    chosen = flags.get("preset", environment.get("preset"))
    preset = _read_preset(str(chosen)) if chosen is not None else {}
    layers = {f"preset {chosen}": preset, "the environment": environment, "flags": flags}
    values: dict[str, Any] = {name: value for layer in layers.values() for name, value in layer.items()}
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise SettingsError(_explain(error, layers)) from None
    if settings.speculative_depth != "auto" and settings.speculative_depth > settings.max_speculative_depth:
        raise SettingsError(
            f"speculative_depth: {settings.speculative_depth} is more than max_speculative_depth, "
            f"{settings.max_speculative_depth}"
        )
    if settings.prefix_cache_dir is not None and settings.prefix_cache_mb == 0:
        raise SettingsError("prefix_cache_dir: there is nothing to keep there while prefix_cache_mb is 0")
    return settings


def environment_without_keys() -> dict[str, str]:
    """The environment for a server of one's own, on this machine, whose keys nobody needs to know."""
    keys = {f"{_ENV_PREFIX}{name}".upper() for name in ("api_key", "api_key_file")}
    return {name: value for name, value in os.environ.items() if name.upper() not in keys}


def preset_names() -> list[str]:
    return sorted(path.stem for path in _PRESETS.glob("*.toml"))


def _read_preset(name: str) -> dict[str, object]:
    path = Path(name) if name.endswith(".toml") else _PRESETS / f"{name}.toml"
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"preset {name}: not found; there are {', '.join(preset_names())}") from None
    except (OSError, ValueError) as error:
        raise SettingsError(f"preset {name}: {error}") from None
    if "preset" in values:
        raise SettingsError(f"preset {name}: a preset cannot name another")
    return values


def _explain(error: ValidationError, layers: Mapping[str, Mapping[str, object]]) -> str:
    """One line for each problem; the last layer that has the name is the one that counted."""
    lines = []
    for problem in error.errors():
        name = str(problem["loc"][0])
        origin = [layer for layer, values in layers.items() if name in values][-1]
        reason = "no such setting" if problem["type"] == "extra_forbidden" else problem["msg"]
        lines.append(f"{name}: {reason} (from {origin})")
    return "; ".join(lines)
