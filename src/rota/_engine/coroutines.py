"""One event loop in a thread of its own, on which the coroutines of all runs go on."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any


class Handle:
    """A coroutine on the loop thread."""

    def __init__(self) -> None:
        self.task: asyncio.Task[object] | None = None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def cancelled(self) -> bool:
        return self.task is not None and self.task.cancelled()

    def result(self) -> object:
        assert self.task is not None
        return self.task.result()


class Loop:
    """One event loop in a thread of its own, shared by all coroutines of this process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="rota-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def start(
        self, value: Coroutine[Any, Any, object], context: contextvars.Context, done: Callable[[], object]
    ) -> Handle:
        handle = Handle()

        def begin() -> None:
            handle.task = self._loop.create_task(value, context=context)
            handle.task.add_done_callback(lambda _: done())

        self.call(begin)
        return handle

    def call(self, function: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def awaited(value: Coroutine[Any, Any, object]) -> object:
    """Await it; SystemExit becomes the cause of an ordinary exception, since it would end the whole loop."""
    try:
        return await value
    except SystemExit as error:
        raise RuntimeError(f"SystemExit: {error}") from error
