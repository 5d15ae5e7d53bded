"""How a training goes, on standard error: a bar where that is a terminal, else a line now and then."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

_LINE_S = 60.0


class TrainingProgress:
    """Hears of the training (`mtplx.engine.training.head_training.Listener`)."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None
        self._told_at_s = time.monotonic()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, stage: str, total: int, done: int = 0) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(stage, total=total, completed=min(done, total), note="")
        self.tell(f"{stage}: {min(done, total)} of {total} done")

    def advance(self, amount: int, note: str = "") -> None:
        assert self._task is not None, "nothing has begun"
        self._bar.update(self._task, advance=amount, note=note)
        if not self._bar.console.is_terminal and time.monotonic() - self._told_at_s > _LINE_S:
            task = self._bar.tasks[-1]
            self.tell(f"{task.description}: {task.completed:.0f} of {task.total:.0f} done {note}".rstrip())

    def tell(self, line: str) -> None:
        self._told_at_s = time.monotonic()
        self._bar.console.print(line)
