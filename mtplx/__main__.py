"""`python -m mtplx`: the command line."""

from mtplx.server.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
