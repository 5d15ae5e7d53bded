"""A progress bar on standard error, where that is a terminal."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


class Progress:
    """Counts runs. It draws only when told of one: a thread that redraws would take time from what is measured."""

    def __init__(self, num_runs: int) -> None:
        console = Console(stderr=True)
        self._bar = RichProgress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=num_runs)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self) -> None:
        self._bar.update(self._task, advance=1, refresh=True)
