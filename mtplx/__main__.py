"""`python -m mtplx`, and the command `mtplx`: the command line, quiet about Ctrl-C from its first moment."""

import sys

_INTERRUPTED = 130


def run() -> int:
    """Run the command that the arguments name; the exit status."""
    try:
        from mtplx.server.cli import main  # takes a moment, in which Ctrl-C may come

        return main()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return _INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(run())
