"""The command line: what the words on it mean, and how a command ends.

Knows flags, of which those for settings are made from the settings themselves. Everything slow to import waits for
the command that needs it, so that help is quick.
"""

import argparse
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

import mtplx
from mtplx.configs.settings import Settings, SettingsError, load_settings, preset_names
from mtplx.engine.errors import EngineError, InvalidRequestError
from mtplx.server.bench.options import add_bench_flags, bench_options
from mtplx.server.bench.serving.options import add_serving_flags, serving_options
from mtplx.server.training.options import add_training_flags, training_options

OK, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130

_GENERATE_SETTINGS = (
    "preset",
    "model",
    "drafter",
    "speculative_depth",
    "max_speculative_depth",
    "acceptance",
    "self_draft_layers",
    "self_draft_bits",
    "draft_model",
    "draft_head",
    "threads",
    "native_kernels",
    "activations",
    "kv_cache_dtype",
)
_CELLS = ("drafter", "speculative_depth", "max_speculative_depth", "acceptance")  # a bench has its own words for them
_BENCH_SETTINGS = tuple(name for name in _GENERATE_SETTINGS if name not in _CELLS)
_TRAINING_SETTINGS = ("preset", "model", "threads", "native_kernels")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status."""
    try:
        chosen = _parser().parse_args(arguments)
        chosen.run(chosen)
        return OK
    except (SettingsError, InvalidRequestError) as error:
        return _complain(error, BAD_USAGE)
    except (EngineError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # whoever read our output has heard enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        return _complain(error, FAILED)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED


def _complain(error: Exception, status: int) -> int:
    print(f"mtplx: {error}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mtplx",
        description="Serve or run a language model with speculative decoding that never changes what it says.",
        epilog="mtplx COMMAND --help says more about a command.",
    )
    parser.add_argument("--version", action="version", version=f"mtplx {mtplx.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="serve OpenAI's API over HTTP", epilog=_about_settings()))
    _add_generate(commands.add_parser("generate", help="write one text to the terminal", epilog=_about_settings()))
    _add_bench(commands.add_parser("bench", help="measure how much faster drafters decode", epilog=_about_settings()))
    _add_training(commands.add_parser("train-head", help="train a draft head for a model", epilog=_about_settings()))
    models = commands.add_parser("models", help="list the models on this machine, and the kernels")
    models.set_defaults(run=_models)
    return parser


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.description = "Serve OpenAI's completion endpoints, /health and /metrics until Ctrl-C."
    _add_settings(parser, Settings.model_fields)
    parser.set_defaults(run=_serve)


def _add_generate(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write what the model makes of a prompt to the terminal, as it is decoded."
    parser.add_argument("--prompt", metavar="TEXT", help="the prompt; standard input if not given")
    parser.add_argument("--chat", action="store_true", help="take the prompt as a message and write the answer to it")
    parser.add_argument("--max-tokens", type=int, default=256, metavar="N", help="most tokens to write (default: 256)")
    parser.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="0 takes the likeliest token (default: 0)"
    )
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="nucleus to sample from (default: 1)")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of what is sampled; a fresh one if not given")
    parser.add_argument("--show-drafts", action="store_true", help="colour the draft tokens that were accepted")
    _add_settings(parser, _GENERATE_SETTINGS)
    parser.set_defaults(run=_generate)


def _add_bench(parser: argparse.ArgumentParser) -> None:
    add_bench_flags(parser)
    add_serving_flags(parser)
    _add_settings(parser, _BENCH_SETTINGS)
    parser.set_defaults(run=_bench)


def _add_training(parser: argparse.ArgumentParser) -> None:
    add_training_flags(parser)
    _add_settings(parser, _TRAINING_SETTINGS)
    parser.set_defaults(run=_train_head)


def _add_settings(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """A flag for each setting. It has no default here: one not given leaves the word to environment and preset.

    A flag that may be true is when it stands alone; one for a list may be given again.
    """
    group = parser.add_argument_group("settings")
    for name in names:
        field = Settings.model_fields[name]
        default = "" if field.default in (None, ()) else f" (default: {field.default})"
        kind: dict[str, Any] = {"nargs": "?", "const": "true"} if field.annotation is bool else {}
        if get_origin(field.annotation) is tuple:
            kind = {"action": "append"}
        group.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            default=argparse.SUPPRESS,
            metavar=_metavar(field.annotation),
            help=f"{field.description}{default}".replace("%", "%%"),
            **kind,
        )


def _metavar(annotation: object) -> str:
    if get_origin(annotation) is tuple:
        return "TEXT"
    kinds: dict[object, str] = {int: "N", float: "X", bool: "{true,false}", Path: "PATH"}
    options = [option for option in get_args(annotation) if option is not NoneType]
    if options and all(isinstance(option, str) for option in options):
        return "{" + ",".join(options) + "}"
    return "|".join(map(_metavar, options)) or kinds.get(annotation, "TEXT")


def _about_settings() -> str:
    return (
        "A setting is also read from MTPLX_<NAME> in the environment, which a flag overrides, and from the preset, "
        f"which both override. Presets: {', '.join(preset_names())}."
    )


def _settings(chosen: argparse.Namespace) -> Settings:
    return load_settings({name: value for name, value in vars(chosen).items() if name in Settings.model_fields})


def _serve(chosen: argparse.Namespace) -> None:
    settings = _settings(chosen)
    from mtplx.server.loading import load_engine
    from mtplx.server.running import run_server

    run_server(settings, load_engine)


def _generate(chosen: argparse.Namespace) -> None:
    settings = _settings(chosen)
    logging.basicConfig(level=logging.WARNING, format="mtplx: %(message)s")
    from mtplx.engine.session import GenerationConfig
    from mtplx.server.generating import generate

    config = GenerationConfig(
        model=settings.model,
        speculative_depth=settings.speculative_depth,
        max_speculative_depth=settings.max_speculative_depth,
        acceptance=settings.acceptance,
        drafter=settings.drafter,
        self_draft_layers=settings.self_draft_layers,
        self_draft_bits=settings.self_draft_bits,
        draft_model=settings.draft_model,
        draft_head=settings.draft_head,
        threads=settings.threads,
        native_kernels=settings.native_kernels,
        activations=settings.activations,
        kv_cache_dtype=settings.kv_cache_dtype,
        max_tokens=chosen.max_tokens,
        temperature=chosen.temperature,
        top_p=chosen.top_p,
        seed=chosen.seed,
    )
    generate(config, _prompt(chosen), chat=chosen.chat, show_drafts=chosen.show_drafts)


def _bench(chosen: argparse.Namespace) -> None:
    settings = _settings(chosen)
    logging.basicConfig(level=logging.WARNING, format="mtplx: %(message)s")
    if chosen.serve is not None:
        from mtplx.server.bench.serving.command import bench_serving

        given = {name: value for name, value in vars(chosen).items() if name in _BENCH_SETTINGS}
        bench_serving(serving_options(chosen), given)
        return
    from mtplx.engine.session import GenerationConfig
    from mtplx.server.bench.command import bench

    config: dict[str, Any] = {name: getattr(settings, name) for name in _BENCH_SETTINGS if name != "preset"}
    bench(bench_options(chosen), GenerationConfig(**config))


def _train_head(chosen: argparse.Namespace) -> None:
    settings = _settings(chosen)
    logging.basicConfig(level=logging.WARNING, format="mtplx: %(message)s")
    from mtplx.server.training.command import train

    train(
        training_options(chosen),
        model=settings.model,
        threads=settings.threads,
        native_kernels=settings.native_kernels,
    )


def _prompt(chosen: argparse.Namespace) -> str:
    try:
        prompt: str = sys.stdin.read() if chosen.prompt is None else chosen.prompt
        prompt.encode()  # Python hides bytes that are no text in halves of characters
    except UnicodeError:
        raise InvalidRequestError("the prompt is not valid UTF-8", field="prompt") from None
    return prompt


def _models(chosen: argparse.Namespace) -> None:
    settings = _settings(chosen)
    from mtplx.server.inventory import installed_models, kernels

    print(f"kernels: {kernels(settings)}")
    models = list(installed_models())
    if not models:
        print("no models here; 'mtplx serve --model owner/name' downloads one from the hub")
        return
    width = max(len(model.name) for model in models)
    for model in models:
        print(f"{model.name:{width}}  {model.num_bytes / 1e6:8.0f} MB  {model.origin}: {model.place}")
