"""Executes the body of a run: functions and coroutines here, commands as process groups, within limits.

Every run has a thread of its own that waits for its end. A function is called in that thread; a
coroutine goes to one shared loop thread; a command is a process group. When the run is lost, told
to stop, or over its time limit, commands get TERM and then KILL, coroutines are cancelled, and
functions are told through `run.lost`, since nothing can end a Python thread from outside.
"""

from __future__ import annotations

import contextvars
import signal as signals
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from rota._core.fluent.work import asks_for_its_run
from rota._core.runs import Outcome, Result
from rota._core.task import Command, Filter, Function, Module, Task
from rota._engine import output as outputs
from rota._engine.clock import Clock
from rota._engine.output import Output
from rota._engine.run import Run, _current

if TYPE_CHECKING:
    from rota._engine.coroutines import Loop

STOP_TIME: Final = 5.0
"""Seconds that a command has between TERM and KILL, and a coroutine to end after it is cancelled."""

REPR_LIMIT: Final = 2_000
_SLICE: Final = 0.25


class Executing(Protocol):
    """What the runner asks of an executor; the simulation has one of its own."""

    def free(self) -> int: ...
    def spawn(self, body: Callable[[], None]) -> None: ...
    def execute(self, run: Run) -> Result: ...
    def judge(self, task: Task) -> Filter | Exception | None: ...


class Executor:
    """Runs at most `most` bodies at once."""

    def __init__(self, clock: Clock, *, most: int = 64) -> None:
        self._clock, self._most = clock, most
        self._lock = threading.Lock()
        self._busy = 0
        self._loop: Loop | None = None

    def free(self) -> int:
        """How many more runs may begin now."""
        with self._lock:
            return self._most - self._busy

    def spawn(self, body: Callable[[], None]) -> None:
        """Call `body` in a thread of its own, in a copy of this context."""
        with self._lock:
            self._busy += 1
        context = contextvars.copy_context()

        def work() -> None:
            try:
                context.run(body)
            finally:
                with self._lock:
                    self._busy -= 1

        threading.Thread(target=work, name="rota-run", daemon=True).start()

    def close(self) -> None:
        """Stop the coroutine loop. Only when no run is going on."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop()

    def judge(self, task: Task) -> Filter | Exception | None:
        """The filter that forbids this run, or what a filter raised, or None if all let it pass.

        All filters of a task share a quarter of its lease.
        """
        limit = task.patience.total_seconds()
        until = self._clock.boot() + limit
        for each in task.filters:
            try:
                value = self._value_of(each.condition, until - self._clock.boot())
            except TimeoutError:
                return TimeoutError(f"{each.label} gave no answer; filters have {limit:g} s together")
            except Exception as error:
                return error
            if bool(value) is not each.wanted:
                return each
        return None

    def _value_of(self, condition: object, seconds: float) -> object:
        """The value of a condition; a callable is called in a thread that is left behind if it hangs."""
        if not callable(condition):
            return condition
        found: list[object] = []
        raised: list[BaseException] = []

        def ask() -> None:
            try:
                value = condition()
                if hasattr(value, "__await__"):
                    import asyncio

                    from rota._engine.coroutines import awaited

                    value = asyncio.run(awaited(cast("Coroutine[Any, Any, object]", value)))
                found.append(value)
            except BaseException as error:
                raised.append(error)

        context = contextvars.copy_context()
        asker = threading.Thread(target=lambda: context.run(ask), name="rota-filter", daemon=True)
        asker.start()
        asker.join(max(0.0, seconds))
        if raised:
            error = raised[0]
            raise error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        if not found:
            raise TimeoutError
        return found[0]

    def execute(self, run: Run) -> Result:
        """Execute the body of a run, wait for its end, and say how it went. It never raises."""
        began = self._clock.boot()
        try:
            output = Output(run.task.output, run.task.name)
        except OSError as error:
            return Result(
                Outcome.FAILED, f"cannot write its output to {run.task.output.path}: {error.strerror}"
            )
        try:
            outputs.catch()
            try:
                outcome, detail = contextvars.copy_context().run(self._body, run, output)
            finally:
                outputs.let_go()
        except BaseException as error:
            output.write(_trace(error))
            outcome, detail = Outcome.FAILED, f"rota could not execute it: {type(error).__name__}: {error}"
        finally:
            output.close()
        return Result(outcome, detail, output.text(), timedelta(seconds=self._clock.boot() - began))

    def _body(self, run: Run, output: Output) -> tuple[Outcome, str]:
        outputs.belongs_to(output)
        _current.set(run)
        work = run.task.work
        if isinstance(work, Function):
            return self._call(run, work, output)
        return self._command(run, work, output)

    # -- functions and coroutines

    def _call(self, run: Run, work: Function, output: Output) -> tuple[Outcome, str]:
        began, limit = self._clock.boot(), run.task.time_limit
        watch = threading.Timer(limit.total_seconds(), run.lost.tell) if limit is not None else None
        if watch is not None:
            watch.daemon = True
            watch.start()
        try:
            value = work.call(
                *work.args, **{**dict.fromkeys(asks_for_its_run(work.call), run), **work.kwargs}
            )
            if hasattr(value, "__await__"):
                value = self._await(run, cast("Coroutine[Any, Any, object]", value))
        except SystemExit as error:
            return _exited(error, output)
        except _Stopped as stopped:
            return stopped.outcome, stopped.detail
        except BaseException as error:
            if isinstance(error.__cause__, SystemExit):
                return _exited(error.__cause__, output)
            output.write(_trace(error))
            return Outcome.FAILED, f"{type(error).__name__}: {error}"
        finally:
            if watch is not None:
                watch.cancel()
        if value is not None:
            output.write(f"{_cut(value)}\n")
        if limit is not None and self._clock.boot() - began > limit.total_seconds():
            return Outcome.TIMED_OUT, f"it took longer than {limit} and did not stop when told"
        return Outcome.SUCCEEDED, ""

    def _await(self, run: Run, value: Coroutine[Any, Any, object]) -> object:
        """The value of a coroutine that runs on the loop thread, in this context."""
        from rota._engine.coroutines import Loop, awaited

        with self._lock:
            if self._loop is None:
                self._loop = Loop()
            loop = self._loop
        done = threading.Event()
        handle = loop.start(awaited(value), contextvars.copy_context(), done.set)
        reason = self._wait(run, done.wait)
        if reason is not None:
            loop.call(handle.cancel)
            if not done.wait(STOP_TIME):
                raise _Stopped(reason[0], f"{reason[1]}; it did not end when cancelled")
            if handle.cancelled() or handle.task is None or handle.task.exception() is not None:
                raise _Stopped(*reason)
        return handle.result()

    def _wait(self, run: Run, wait: Callable[[float], bool]) -> tuple[Outcome, str] | None:
        """Wait for a body to end; the outcome to give it if it must be stopped first."""
        limit = run.task.time_limit
        until = None if limit is None else self._clock.boot() + limit.total_seconds()
        while True:
            left = _SLICE if until is None else min(_SLICE, until - self._clock.boot())
            if wait(max(0.0, left)):
                return None
            if run.stopped_by is not None:
                return Outcome.CANCELLED, f"stopped by {run.stopped_by}"
            if run.held.is_lost:
                return Outcome.LOST, "its lease ended while it ran"
            if until is not None and self._clock.boot() >= until:
                run.lost.tell()
                return Outcome.TIMED_OUT, f"it took longer than {limit}"

    # -- commands

    def _command(self, run: Run, work: Command | Module, output: Output) -> tuple[Outcome, str]:
        from rota._engine.processes import Process

        try:
            process = Process(run, work, output)
        except (OSError, ValueError) as error:
            return Outcome.FAILED, f"it could not be started: {error}"
        reason = self._wait(run, process.wait)
        if reason is not None:
            process.stop(STOP_TIME)
        code = process.exit_code()
        if reason is not None:
            return reason
        if code < 0:
            return Outcome.FAILED, f"killed by {signals.Signals(-code).name}"
        return (Outcome.SUCCEEDED, "") if code == 0 else (Outcome.FAILED, f"exit code {code}")


class _Stopped(Exception):
    """A coroutine was stopped, with the outcome that this gives."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome, self.detail = outcome, detail


def _trace(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(error))


def _exited(error: SystemExit, output: Output) -> tuple[Outcome, str]:
    """`exit()` in a task ends the task, as it would end a program."""
    if error.code is None or error.code == 0:
        return Outcome.SUCCEEDED, "it called exit()"
    if not isinstance(error.code, int):
        output.write(f"{error.code}\n")
    return Outcome.FAILED, f"it called exit({error.code!r})"


def _cut(value: object) -> str:
    try:
        text = repr(value)
    except Exception as error:
        return f"<its return value has no repr: {type(error).__name__}: {error}>"
    return (
        text if len(text) <= REPR_LIMIT else f"{text[:REPR_LIMIT]}… {len(text) - REPR_LIMIT} characters cut"
    )
