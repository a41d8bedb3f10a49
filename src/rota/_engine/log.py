"""What is logged inside a run goes to the output of that run."""

from __future__ import annotations

import logging

from rota._engine import output as outputs


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        output = outputs.current()
        if output is None:
            return
        try:
            output.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)


_handler = _Handler()
_handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))


def attach() -> None:
    """Listen to everything that is logged; tasks' own loggers from INFO on, unless told otherwise."""
    logging.getLogger().addHandler(_handler)
    ours = logging.getLogger("rota.task")
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO)


def detach() -> None:
    logging.getLogger().removeHandler(_handler)
