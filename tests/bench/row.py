"""One measured value and what it must reach, printed and written alike by all measurements."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """One measured value, and what it must reach: at least, or at most for costs; None where nothing is demanded."""

    name: str
    value: float | None
    unit: str
    must: float | None = None
    at_most: bool = False

    @property
    def ok(self) -> bool | None:
        if self.value is None or self.must is None:
            return None
        return self.value <= self.must if self.at_most else self.value >= self.must

    def __str__(self) -> str:
        value = "not measured" if self.value is None else f"{self.value:10.2f} {self.unit}"
        demand = "" if self.must is None else f"{'<=' if self.at_most else '>='} {self.must:g}"
        verdict = {True: "ok", False: "FALLS SHORT", None: ""}[self.ok]
        return f"{self.name:58} {value:20} {demand:10} {verdict}"


def finish(rows: Sequence[Row]) -> int:
    """Write the rows where JSON=path asks for it; the exit status, 1 when a row falls short."""
    if path := os.environ.get("JSON"):
        with open(path, "w") as file:
            json.dump([asdict(row) | {"ok": row.ok} for row in rows], file, indent=1)
    return 1 if any(row.ok is False for row in rows) else 0
