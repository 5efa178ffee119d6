"""Logs for machines: a JSON object a line, about requests and never about the texts in them."""

import json
import logging
import time
import traceback
from typing import Any

LOGGER = logging.getLogger("mein.serve")
FIELDS = "mein_fields"


class JsonLines(logging.Formatter):
    """A record as one line. Of an exception it tells kind and place, not its words: they may quote texts."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, event, and the record's own fields."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage().partition("\n")[0],
        }
        line |= getattr(record, FIELDS, {})
        if record.exc_info and record.exc_info[1] is not None:
            line |= described(record.exc_info[1])
        return json.dumps(line, ensure_ascii=True)


def described(problem: BaseException) -> dict[str, Any]:
    """An exception's kind and where it was raised."""
    frames = traceback.extract_tb(problem.__traceback__)[-4:]
    return {
        "exception": type(problem).__name__,
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    """Write a line with these fields."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, event, extra={FIELDS: fields})


def log_config() -> dict[str, Any]:
    """Every log of this process, uvicorn's too, as JSON lines on stderr; for logging.config.dictConfig."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonLines}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}
        },
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {"mein.serve": {"level": "INFO"}, "uvicorn": {"level": "INFO", "propagate": True}},
    }
