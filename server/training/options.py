"""What may be asked of `mtplx train-head` on the command line. Imports nothing slow: help is made of it."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrainingOptions:
    """The words of the command line, checked as far as that goes without a model."""

    out: Path
    data: Path | None
    tokens: int
    answer_tokens: int
    disk_gb: float
    vocabulary_size: int | None
    chained_steps: int
    epochs: int
    minutes: float | None
    batch_tokens: int
    learning_rate: float
    bits: int | None
    seed: int


def add_training_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Train a draft head for a model, from nothing but the model: it writes texts, and a block like its last layer "
        "learns to foresee it on them. Whatever a head drafts, it changes no output. Run the same command again to go "
        "on where an interrupted one was."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write the head to")
    _add_texts(parser.add_argument_group("texts"))
    _add_learning(parser.add_argument_group("training"))


def _add_texts(group: argparse._ArgumentGroup) -> None:
    forms = "a .jsonl file with 'prompt', 'messages' or 'text' a line, or a text"
    add = group.add_argument
    add("--data", type=Path, metavar="FILE", help=f"{forms}; prompts are answered by the model, which without it "
        "writes them too")  # fmt: skip
    add("--tokens", type=_whole(1), default=1_100_000, metavar="N", help="tokens of text (default: 1100000)")
    add("--answer-tokens", type=_whole(8), default=256, metavar="N", help="most tokens of an answer (default: 256)")
    add("--disk-gb", type=_positive, default=8.0, metavar="X",
        help="GB for hidden states, under DIR; what does not fit is slowly computed anew (default: 8)")  # fmt: skip


def _add_learning(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--vocabulary-size", type=_size, default=8192, metavar="N",
        help="tokens that the head may propose, the most frequent ones; all for the whole vocabulary "
        "(default: 8192)")  # fmt: skip
    add("--chained-steps", type=_whole(1), default=2, metavar="N", help="steps of a draft to learn (default: 2)")
    add("--epochs", type=_whole(1), default=4, metavar="N", help="times through all texts (default: 4)")
    add("--minutes", type=_positive, metavar="X",
        help="most time to train, texts not counted; makes the result depend on the machine")  # fmt: skip
    add("--batch-tokens", type=_whole(1), default=2048, metavar="N", help="tokens of a step (default: 2048)")
    add("--learning-rate", type=_positive, default=0.02, metavar="X", help="the highest (default: 0.02)")
    add("--bits", type=int, choices=(4, 8, 32), default=8, help="of the head's weights on disk (default: 8)")
    add("--seed", type=_whole(0), default=0, metavar="N", help="decides all that is random (default: 0)")


def training_options(chosen: argparse.Namespace) -> TrainingOptions:
    return TrainingOptions(**{name: getattr(chosen, name) for name in TrainingOptions.__dataclass_fields__})


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, not {text!r}")
        return int(text)

    return parse


def _size(text: str) -> int | None:
    return None if text == "all" else _whole(1)(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text!r}")
    return value
