"""The texts that a head learns from, on disk as they come.

A line of JSON for each, in the order of their numbers: a run that was killed goes on behind the last whole line. Knows
no model and no tokenizer.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mtplx.engine.errors import EngineError


@dataclass(frozen=True)
class Text:
    """Tokens of which the first `num_given` were given to the model, and the others are to be foreseen.

    No tokens at all stand for a text that was left out. The last token has no row in the target: nothing is foreseen
    from it.
    """

    tokens: tuple[int, ...]
    num_given: int

    @property
    def num_rows(self) -> int:
        """Rows of the target, whose hidden states are learnt from."""
        return max(0, len(self.tokens) - 1)

    @property
    def num_written(self) -> int:
        return len(self.tokens) - self.num_given


class TextFile:
    """An append-only file of texts. Raises EngineError when it holds anything else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.texts = _read_whole_lines(path) if path.exists() else []

    @property
    def num_tokens(self) -> int:
        return sum(len(text.tokens) for text in self.texts)

    def append(self, texts: Sequence[Text]) -> None:
        """Write them through to the system: they outlive this process."""
        lines = [json.dumps({"tokens": text.tokens, "given": text.num_given}) + "\n" for text in texts]
        with self._path.open("ab") as file:
            file.write("".join(lines).encode())
        self.texts += texts


def _read_whole_lines(path: Path) -> list[Text]:
    """The texts, after which the file ends: the beginning of a line that was never finished is cut off."""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    try:
        entries = [json.loads(line) for line in whole.splitlines()]
        return [Text(tuple(entry["tokens"]), entry["given"]) for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{path} is damaged ({error}); delete its folder to begin anew") from None
