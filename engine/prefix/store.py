"""A tree of prefixes on disk, for the next start.

Knows files: safetensors for rows and states, each named by its checksum, and an index of what they belong to. Knows no
cache. Whatever is wrong with a file costs what was in it, never an error.
"""

import hashlib
import io
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from mtplx.engine.cache import State
from mtplx.engine.prefix.node import Node
from mtplx.engine.prefix.tree import PrefixTree

logger = logging.getLogger(__name__)

_FORMAT = 1  # of index and files
_INDEX = "prefixes.index"
_FILE = "prefix-{}.safetensors"
_ANY_FILE = _FILE.format("[0-9a-f]" * 64) + "*"  # also one that was not written to its end


class _DamagedError(Exception):
    """What is wrong with a file, in words for a person."""


@dataclass(frozen=True)
class _Entry:
    """A node as the index has it. `state` is its state with numbers in place of arrays."""

    parent: int | None  # which entry; None for the first run of a text
    salt: str
    tokens: list[int]
    in_use: bool
    state: Any
    checksum: str
    num_bytes: int


class PrefixStore:
    """A folder that keeps the prefixes of one model at a time. Files that aren't its own stay as they are.

    The files hold what users wrote, as tokens, and their salts; a folder made here is for its owner alone.

    Args:
        model: names the very weights and the way they run. Prefixes of another model are of no use, and not loaded.
    """

    def __init__(self, folder: Path, model: str) -> None:
        self._folder = folder
        self._model = model

    def save(self, tree: PrefixTree, budget_bytes: int) -> None:
        """Write the prefixes used last, as many rows and states as fit the budget, in place of what was saved before.

        If that fails it is logged, and what was saved before stays.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            entries = [self._write(*each) for each in _numbered(_last_used(tree, budget_bytes), tree)]
            index = {"format": _FORMAT, "model": self._model, "entries": [asdict(entry) for entry in entries]}
            body = json.dumps(index).encode()
            self._replace(_INDEX, _checksum(body).encode() + b"\n" + body)
            kept = {_FILE.format(entry.checksum) for entry in entries}
            for path in self._folder.glob(_ANY_FILE):
                if path.name not in kept:
                    path.unlink()
        except (OSError, TypeError) as error:
            logger.warning("prefixes are not saved to %s: %s", self._folder, error)

    def load(self, tree: PrefixTree, budget_bytes: int) -> None:
        """Put saved prefixes into an empty tree, those used last first, as many as fit the budget.

        A file that is missing or damaged is skipped and logged, and so goes what comes after its rows.
        """
        nodes: dict[int, Node] = {}
        entries = self._entries()
        for number, entry in enumerate(entries):
            has_beginning = entry.parent is None or entry.parent in nodes
            if has_beginning and tree.num_bytes + entry.num_bytes <= budget_bytes:
                try:
                    rows, state = self._read(entry)
                except _DamagedError as error:
                    logger.warning("skipped a saved prefix: %s", error)
                else:
                    parent = tree.salted(entry.salt) if entry.parent is None else nodes[entry.parent]
                    nodes[number] = tree.attach(parent, tuple(entry.tokens), rows, state)
        for number, node in reversed(nodes.items()):
            if entries[number].in_use:
                tree.use(node)
        for node in nodes.values():
            tree.prune(node)

    def _write(self, node: Node, parent: int | None, salt: str, in_use: bool) -> _Entry:
        states: list[mx.array] = []
        outline = _outline(node.state, states)
        arrays = {f"rows.{place}": part for place, part in enumerate(node.rows)}
        arrays |= {f"state.{place}": part for place, part in enumerate(states)}
        file = io.BytesIO()
        mx.save_safetensors(file, arrays)
        checksum = _checksum(file.getvalue())
        self._replace(_FILE.format(checksum), file.getvalue())
        return _Entry(parent, salt, list(node.tokens), in_use, outline, checksum, node.num_bytes)

    def _read(self, entry: _Entry) -> tuple[tuple[mx.array, ...], State]:
        """Rows and state. Raises _DamagedError."""
        content = self._content(_FILE.format(entry.checksum))
        if _checksum(content) != entry.checksum:
            raise _DamagedError(f"{_FILE.format(entry.checksum)} is damaged")
        arrays: dict[str, mx.array] = mx.load(io.BytesIO(content), format="safetensors")  # type: ignore[assignment]
        mx.eval(arrays)
        num_rows = sum(name.startswith("rows.") for name in arrays)
        return tuple(arrays[f"rows.{place}"] for place in range(num_rows)), _filled(entry.state, arrays)

    def _entries(self) -> list[_Entry]:
        """What the index has for this model."""
        if not (self._folder / _INDEX).exists():
            return []
        try:
            checksum, _, body = self._content(_INDEX).partition(b"\n")
            if checksum.decode(errors="replace") != _checksum(body):
                raise _DamagedError(f"{_INDEX} is damaged")
        except _DamagedError as error:
            logger.warning("no saved prefixes are loaded: %s", error)
            return []
        index = json.loads(body)
        if (index["format"], index["model"]) != (_FORMAT, self._model):
            logger.info("the prefixes saved in %s are another model's or version's", self._folder)
            return []
        return [_Entry(**entry) for entry in index["entries"]]

    def _content(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except OSError as error:
            raise _DamagedError(f"{name} cannot be read ({error.strerror})") from error

    def _replace(self, name: str, content: bytes) -> None:
        """Write a file so that there is always all of it, or all of what was there before."""
        partial = self._folder / f"{name}.partial"
        partial.write_bytes(content)
        os.replace(partial, self._folder / name)


def _last_used(tree: PrefixTree, budget_bytes: int) -> list[Node]:
    """What fits the budget, those used last first, but each after the one before it in its text."""
    chosen: dict[Node, None] = {}
    num_bytes = 0
    for node in reversed(tree.used):
        missing = [each for each in node.lineage() if each not in chosen]
        num_bytes += sum(each.num_bytes for each in missing)
        if num_bytes > budget_bytes:
            break
        chosen |= dict.fromkeys(reversed(missing))
    return list(chosen)


def _numbered(nodes: list[Node], tree: PrefixTree) -> Iterator[tuple[Node, int | None, str, bool]]:
    """Each node with its parent's number, its salt and whether it is in use."""
    numbers = {node: number for number, node in enumerate(nodes)}
    used = set(tree.used)
    for node in nodes:
        *_, first = node.lineage()
        assert node.parent is not None
        assert first.parent is not None
        yield node, numbers.get(node.parent), str(first.parent.key), node in used


def _outline(state: State, arrays: list[mx.array]) -> Any:
    """The state as JSON has it; its arrays go to `arrays`. Raises TypeError for what cannot be written."""
    match state:
        case mx.array():
            arrays.append(state)
            return {"array": len(arrays) - 1}
        case list() | tuple():
            return {type(state).__name__: [_outline(part, arrays) for part in state]}
        case dict():
            return {"dict": {name: _outline(part, arrays) for name, part in state.items()}}
        case None | bool() | int() | float() | str():
            return {"plain": state}
    raise TypeError(f"a cache has a {type(state).__name__}")


def _filled(outline: Any, arrays: dict[str, mx.array]) -> State:
    """The state that `_outline` was given."""
    [(kind, content)] = outline.items()
    match kind:
        case "array":
            return arrays[f"state.{content}"]
        case "list":
            return [_filled(part, arrays) for part in content]
        case "tuple":
            return tuple(_filled(part, arrays) for part in content)
        case "dict":
            return {name: _filled(part, arrays) for name, part in content.items()}
    return content


def _checksum(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=32).hexdigest()
