"""What a run prints: caught, cut to a size, kept readable, and passed on where the task wants it.

Standard output and error are caught per run, not per process: a stand-in for `sys.stdout` asks the
context whose output this is, so that runs which go on at once do not mix, and what is printed
outside any run goes where it always went.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from contextvars import ContextVar
from typing import Final, TextIO

from rota._core.task import OutputPolicy

LIMIT: Final = 64 * 1024
"""Characters of output kept in a row: the first and the last half of what a longer run prints."""

LONGEST_DETAIL: Final = 500
"""Characters of a detail."""


class Output:
    """The output of one run. Safe to write to from any thread."""

    def __init__(self, policy: OutputPolicy, name: str) -> None:
        self._lock = threading.Lock()
        self._head: list[str] = []
        self._tail: list[str] = []
        self._head_size = self._tail_size = self._cut = 0
        self._name, self._echo = name, policy.echo
        self._file: TextIO | None = None
        if policy.path is not None:
            self._file = open(policy.path, "a", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115  # closed by `close`

    def write(self, text: str) -> int:
        with self._lock:
            self._keep(text)
            if self._file is not None:
                self._file.write(text)
                self._file.flush()
            if self._echo:
                _pass_on(text)
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def _keep(self, text: str) -> None:
        room = LIMIT // 2 - self._head_size
        if room > 0:
            self._head.append(text[:room])
            self._head_size += len(self._head[-1])
            text = text[room:]
        if not text:
            return
        self._tail.append(text)
        self._tail_size += len(text)
        if self._tail_size > LIMIT:
            kept = "".join(self._tail)
            self._cut += len(kept) - LIMIT // 2
            self._tail, self._tail_size = [kept[-(LIMIT // 2) :]], LIMIT // 2

    def text(self) -> str:
        """What is kept, with a line that says how much was cut out of the middle."""
        with self._lock:
            head, tail = "".join(self._head), "".join(self._tail)
            over = max(0, len(tail) - LIMIT // 2)
            cut = self._cut + over
            text = head + (f"\n… {cut} characters cut …\n" if cut else "") + tail[over:]
        return _writable(text)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


def one_sentence(detail: str) -> str:
    """A detail that any store can write and a person can read; an exception may say anything."""
    text = _writable(detail)
    return (
        text if len(text) <= LONGEST_DETAIL else f"{text[:LONGEST_DETAIL]}… {len(text) - LONGEST_DETAIL} more"
    )


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


class _Router:
    """Stands in for a standard stream: writes go to the run of this context, else to the stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        output = _output.get(None)
        return self._stream.write(text) if output is None else output.write(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


_output: ContextVar[Output | None] = ContextVar("rota.output", default=None)
_streams: dict[str, TextIO] = {}
_users = 0
_lock = threading.Lock()


def catch() -> None:
    """Route the standard streams and the log by run, from now until `let_go` has been called as often."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            for name in ("stdout", "stderr"):
                _streams[name] = getattr(sys, name)
                setattr(sys, name, _Router(_streams[name]))
            if "logging" in sys.modules:
                catch_log()


def let_go() -> None:
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            for name, stream in _streams.items():
                if isinstance(getattr(sys, name), _Router):
                    setattr(sys, name, stream)
            _streams.clear()
            if "rota._engine.log" in sys.modules:
                sys.modules["rota._engine.log"].detach()


def catch_log() -> None:
    """Route the log by run as well. A log that nobody has imported yet is not worth its import.

    Imported and used for the first time inside a run, it writes to standard error, which is caught.
    """
    from rota._engine import log

    log.attach()


def current() -> Output | None:
    """The output of the run in whose context we are."""
    return _output.get(None)


def belongs_to(output: Output) -> None:
    """From here on, in this context, what is printed is this run's output."""
    _output.set(output)


def _pass_on(text: str) -> None:
    """Nobody reading our standard output any more is no trouble of the run: its row keeps what it printed."""
    stream = _streams.get("stdout", sys.stdout)
    with suppress(OSError):
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
