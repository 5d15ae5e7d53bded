"""Whether llguidance can take a grammar, found out in a process of its own.

There are grammars of few letters that it takes forever for, and some that overflow its stack, which no limit of its own
prevents. What becomes of the process harms nobody: it ends, and is started anew.
"""

import json
import logging
import signal
import subprocess
import sys
import threading
import weakref
from typing import IO

from mtplx.engine.errors import EngineError, InvalidRequestError
from mtplx.engine.grammar.matchers import new_matcher
from mtplx.engine.grammar.sources import source_of
from mtplx.engine.grammar.spec import GrammarSpec
from mtplx.engine.grammar.vocabulary import TokenTable, grammar_vocabulary, longest_first

logger = logging.getLogger(__name__)

_START_S = 60.0  # importing, on a machine that has other things to do
_STACK_BYTES = 2**21  # much less than threads have, so that what passes here overflows no stack elsewhere


class Checker:
    """Checks one grammar at a time, each for at most `timeout_s`. Any thread may ask. Starts its process when asked."""

    def __init__(self, table: TokenTable, timeout_s: float) -> None:
        self._table = table
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def source(self, spec: GrammarSpec) -> str:
        """The grammar in llguidance's own form. Raises InvalidRequestError, with the reason alone, if it is wrong or
        takes too much to follow, and EngineError if there can be no process."""
        with self._lock:
            process = self._process or self._start()
            try:
                source, complaint = _ask(process, (spec.kind, spec.value))
            except (OSError, ValueError):  # it has ended
                self._end()
                source, complaint = "", "it takes too much to follow; make it simpler"
        if complaint:
            raise InvalidRequestError(complaint)
        return source

    def _start(self) -> "subprocess.Popen[str]":
        # By the path of this process, for "-m" would look for modules in the current folder first.
        run = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import answer; answer()"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", run],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # a Ctrl-C is for the server
            )
            self._stop = weakref.finalize(self, _stop, self._process)
            tokens = [token.decode("latin-1") for token in self._table.tokens]
            _ask(self._process, (tokens, self._table.special, self._table.eos, self._timeout_s))
        except (OSError, ValueError) as error:
            self._end()
            logger.exception("the process that checks grammars cannot be started")
            raise EngineError("grammars cannot be checked here; the server's log says why") from error
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process = None
            self._stop()


def _ask(process: "subprocess.Popen[str]", question: object) -> tuple[str, str]:
    """Its answer: a source and a complaint. Raises OSError or ValueError if the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(question) + "\n")
    process.stdin.flush()
    source, complaint = json.loads(process.stdout.readline())
    return source, complaint


def _stop(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def answer() -> None:
    """The life of the process: a table of tokens and a time, then grammars, a line each.

    What takes longer than the time ends the process, even if the one that asked is gone.
    """
    signal.setitimer(signal.ITIMER_REAL, _START_S)
    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=_answer, args=(sys.stdin,))
    thread.start()
    thread.join()


def _answer(questions: IO[str]) -> None:
    tokens, special, eos, timeout_s = json.loads(questions.readline())
    table = TokenTable([token.encode("latin-1") for token in tokens], special, eos)
    vocabulary = grammar_vocabulary(table, longest_first(table))
    _tell("", "")
    for line in questions:
        kind, value = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, timeout_s)
        try:
            source = source_of(kind, tuple(value) if isinstance(value, list) else value)
            _tell(source, new_matcher(vocabulary, source).get_error())
        except Exception as error:  # whatever is wrong with the grammar
            _tell("", str(error) or repr(error))


def _tell(source: str, complaint: str) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    print(json.dumps((source, complaint)), flush=True)
