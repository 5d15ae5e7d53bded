"""Whether llguidance can take a grammar, found out in a process of its own.

There are grammars of few letters that it takes forever for, and some that overflow its stack, which no limit of its own
prevents. What becomes of the process harms nobody: it is killed and started anew.
"""

import json
import select
import subprocess
import sys
import threading
import weakref

from mtplx.engine.grammar.matchers import new_matcher
from mtplx.engine.grammar.vocabulary import TokenTable, grammar_vocabulary, longest_first

_START_S = 60.0  # importing, on a machine that has other things to do


class Checker:
    """Checks one grammar at a time, each for at most `timeout_s`. Any thread may ask. Starts its process when asked."""

    def __init__(self, table: TokenTable, timeout_s: float) -> None:
        self._table = table
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def complaint(self, source: str) -> str:
        """What is wrong with a grammar in llguidance's own form, or nothing."""
        with self._lock:
            process = self._process or self._start()
            try:
                return _ask(process, source, self._timeout_s)
            except (TimeoutError, OSError, ValueError):
                _end(process)
                self._process = None
                return "it takes too much to follow; make it simpler"

    def _start(self) -> "subprocess.Popen[str]":
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # a Ctrl-C is for the server
        )
        weakref.finalize(self, _end, self._process)
        tokens = [token.decode("latin-1") for token in self._table.tokens]
        _ask(self._process, (tokens, self._table.special, self._table.eos), _START_S)
        return self._process


def _ask(process: "subprocess.Popen[str]", question: object, timeout_s: float) -> str:
    """Raises TimeoutError, or OSError or ValueError if the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(question) + "\n")
    process.stdin.flush()
    ready, _, _ = select.select([process.stdout], [], [], timeout_s)
    if not ready:
        raise TimeoutError
    return str(json.loads(process.stdout.readline()))


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def _answer() -> None:
    """The life of the process: a table of tokens, then grammars, a line each."""
    tokens, special, eos = json.loads(sys.stdin.readline())
    table = TokenTable([token.encode("latin-1") for token in tokens], special, eos)
    vocabulary = grammar_vocabulary(table, longest_first(table))
    print(json.dumps(""), flush=True)
    for line in sys.stdin:
        print(json.dumps(new_matcher(vocabulary, json.loads(line)).get_error()), flush=True)


if __name__ == "__main__":
    _answer()
