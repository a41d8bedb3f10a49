"""Commands as process groups: started, read, waited for without polling, and ended as a whole."""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import signal
import subprocess
import sys
import threading

from rota._core.task import Command, Module
from rota._engine.output import Output
from rota._engine.run import Run


class Process:
    """A command that is running. Raises OSError or ValueError if it cannot be started."""

    def __init__(self, run: Run, work: Command | Module, output: Output) -> None:
        if isinstance(work, Module):
            work = Command((sys.executable, "-m", work.name, *work.args))
        line = work.line
        self._process = subprocess.Popen(
            _utf8(line) if isinstance(line, str) else [_utf8(word) for word in line],
            shell=isinstance(line, str),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=None if work.cwd is None else _utf8(work.cwd),
            env=os.environb
            | {_utf8(name): _utf8(text) for name, text in {**_variables(run), **work.env}.items()},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(output,), name="rota-output", daemon=True)
        self._reader.start()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, at most so long; whether it has ended."""
        if self._process.poll() is not None:
            return True
        descriptor = os.pidfd_open(self._process.pid)
        try:
            select.select([descriptor], [], [], seconds)
        finally:
            os.close(descriptor)
        return self._process.poll() is not None

    def stop(self, seconds: float) -> None:
        """TERM for the whole group, and KILL for what is left of it after so long."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            self.wait(seconds)

    def exit_code(self) -> int:
        """Its exit code, or minus the signal that killed it, after what it printed has been read.

        A process that it left behind may keep the pipe open; that is waited for a second.
        """
        self._reader.join(1.0)
        return self._process.wait()

    def _read(self, output: Output) -> None:
        """Pass its bytes on as text. What is not UTF-8 is replaced, and never an error."""
        assert self._process.stdout is not None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with self._process.stdout as stream:
            while chunk := os.read(stream.fileno(), 65536):
                output.write(decoder.decode(chunk))
        output.write(decoder.decode(b"", final=True))


def _utf8(text: str) -> bytes:
    """Always UTF-8: under the bare locale that cron gives, Python would refuse an umlaut."""
    return text.encode("utf-8", "surrogateescape")


def _variables(run: Run) -> dict[str, str]:
    """What a command is told of its run."""
    return {
        "ROTA_TASK": run.task.name,
        "ROTA_OCCURRENCE": run.key,
        "ROTA_ATTEMPT": str(run.attempt),
        "ROTA_FENCE": str(run.fence),
    }
