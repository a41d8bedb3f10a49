"""Signals while a command runs: each SIGTERM or SIGINT takes one further step towards the end.

Python runs a signal handler between any two instructions of the main thread, perhaps while that
thread holds a lock. So the handler does nothing: the number of the signal arrives through a pipe
at a thread of its own, which may take locks like any other.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_ENOUGH: Final = b"\0"


class Stopping:
    """While this context lasts, the first signal calls the first step with its name, and so on; the
    last step answers all that follow. Outside the main thread signals are left alone."""

    def __init__(self, *steps: Callable[[str], object]) -> None:
        self._steps = steps
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            self._read, self._write = os.pipe()
            os.set_blocking(self._write, False)
            self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            self._before = {number: signal.signal(number, _nothing) for number in SIGNALS}
            self._thread = threading.Thread(target=self._watch, name="rota-signals", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._before:
            return
        for number, before in self._before.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(self._wakeup)
        os.write(self._write, _ENOUGH)
        self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def _watch(self) -> None:
        taken = 0
        while (byte := os.read(self._read, 1)) != _ENOUGH:
            if byte[0] in SIGNALS:
                step = self._steps[min(taken, len(self._steps) - 1)]
                taken += 1
                step(signal.Signals(byte[0]).name)


def _nothing(number: int, frame: FrameType | None) -> None:
    """The watching thread acts."""
