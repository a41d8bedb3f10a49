"""Real servers for the tests: private instances in a temporary folder, on loopback, on a port of their own.

Each kind is a module beside this one with a function that starts one and answers a `Process`. `shared` makes
one of it that serves a whole test session. What was started here is stopped here, by its pid.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

import pytest

P = ParamSpec("P")
T = TypeVar("T", bound="Process")

READY_WITHIN = 30.0
STOPS_WITHIN = 10.0

_started: list[Process] = []


def missing_service(what: str) -> NoReturn:
    """A server that cannot be started: an error in CI, a visible skip elsewhere."""
    if os.environ.get("CI"):
        pytest.fail(f"missing service: {what}", pytrace=False)
    pytest.skip(f"missing service: {what}")


def need(program: str, package: str, *places: str) -> str:
    """The path of a program, looked for on PATH and in `places`; `package` is where Debian has it."""
    found = shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", *places)))
    return found or missing_service(f"{program} (Debian package {package})")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def new_folder(name: str) -> Path:
    """A temporary folder that every user may search, as servers with a user of their own need it."""
    folder = Path(tempfile.mkdtemp(prefix=f"rota-{name}-"))
    folder.chmod(0o755)
    return folder


class Process:
    """One server process on `port`, with its files in `folder`, which goes with it.

    `command` is started again by `restart`, on the same port and files. Its output is in `log`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        answers: Callable[[Process], bool] | None = None,
    ) -> None:
        self.command, self.port, self.folder = list(command), port, folder
        self.log = folder / "server.log"
        self._environment = {**os.environ, **environment} if environment else None
        self._answers = answers or listens
        self._process: subprocess.Popen[bytes] | None = None
        _started.append(self)
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self.folder,
                start_new_session=True,
            )
        until(lambda: not self.runs or self._answers(self), READY_WITHIN, f"{self.command[0]} to answer")
        if not self.runs:
            raise RuntimeError(f"{self.command[0]} ended: {self.log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """End it as an operator does; at last with force."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOPS_WITHIN)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop it for good, and delete its files."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(ValueError):
            _started.remove(self)


def listens(server: Process) -> bool:
    """Whether something accepts connections on the server's port."""
    try:
        socket.create_connection(("127.0.0.1", server.port), 1).close()
    except OSError:
        return False
    return True


def shared(start: Callable[P, T]) -> Callable[P, T]:
    """One server for all tests of this process that ask with the same arguments; started when first asked."""
    return functools.cache(start)  # type: ignore[return-value]  # it is called with the same arguments


def stop_all() -> None:
    """Stop whatever is still running; the last one started first. The session calls it at its end."""
    for server in reversed(_started[:]):
        server.remove()


def until(holds: Callable[[], object], within: float, what: str, *, every: float = 0.02) -> None:
    """Wait for a condition, no longer than `within` seconds."""
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {within:g} s in vain for {what}")
        time.sleep(every)
