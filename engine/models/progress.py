"""Where loading reports what takes long."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TaskID, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar


class Progress(Protocol):
    """Told about a download."""

    def say(self, text: str) -> None:
        """Something is about to happen."""

    def update(self, done: int, total: int) -> None:
        """`done` of about `total` bytes are here."""

    def close(self) -> None:
        """Nothing more will come, whether or not all is here."""


class TerminalProgress:
    """Progress on stderr: a bar on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Bar | None = None
        self._task = TaskID(0)

    def say(self, text: str) -> None:
        """Write a line."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def update(self, done: int, total: int) -> None:
        """Move the bar; it goes away when all is there."""
        if not self._console.is_terminal:
            return
        if self._bar is None:
            columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
            self._bar = Bar(*columns, console=self._console)
            self._task = self._bar.add_task("", total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total)
        if done >= total:
            self.close()

    def close(self) -> None:
        """Take the bar away, also when the download failed."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
