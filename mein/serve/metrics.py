"""What a server counts, as the text that Prometheus reads. Only the event loop's thread writes here."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """How many values lie below each bound.

    >>> seen = Histogram((1.0, 2.0))
    >>> seen.add(1.5)
    >>> list(seen.lines("x", ""))
    ['x_bucket{le="1"} 0', 'x_bucket{le="2"} 1', 'x_bucket{le="+Inf"} 1', 'x_sum 1.5', 'x_count 1']
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """The cumulative counts, the sum and the number, with labels such as `path="/"`."""
        below = 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            below += count
            le = f'le="{"+Inf" if bound is None else format(bound, "g")}"'
            yield f"{name}_bucket{{{labels + ',' if labels else ''}{le}}} {below}"
        named = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{named} {self.sum:.9g}"
        yield f"{name}_count{named} {below}"


@dataclass
class Metrics:
    """Everything that is counted since the start."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By path and status."""
    texts: Counter[str] = field(default_factory=Counter)
    """Texts answered, by path."""
    seconds: dict[str, Histogram] = field(default_factory=dict)
    """Of a request, body and answer, by path."""
    batch_texts: Histogram = field(default_factory=lambda: Histogram(SIZES))
    batch_seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    in_flight: int = 0
    waiting_texts: int = 0

    def add_request(self, path: str, status: int, seconds: float, texts: int) -> None:
        """Count an answered request."""
        self.requests[path, status] += 1
        self.texts[path] += texts
        self.seconds.setdefault(path, Histogram(SECONDS)).add(seconds)

    def render(self) -> str:
        """The text that Prometheus reads."""
        return "\n".join([*self._counted(), *self._measured(), *self._standing()]) + "\n"

    def _counted(self) -> Iterator[str]:
        yield from _head("mein_requests_total", "counter", "Requests answered.")
        for (path, status), count in sorted(self.requests.items()):
            yield f'mein_requests_total{{path="{path}",status="{status}"}} {count}'
        yield from _head("mein_texts_total", "counter", "Texts answered.")
        for path, count in sorted(self.texts.items()):
            yield f'mein_texts_total{{path="{path}"}} {count}'

    def _measured(self) -> Iterator[str]:
        yield from _head("mein_request_seconds", "histogram", "From a request's first byte to its answer.")
        for path, histogram in sorted(self.seconds.items()):
            yield from histogram.lines("mein_request_seconds", f'path="{path}"')
        yield from _head("mein_batch_texts", "histogram", "Texts that the model read at once.")
        yield from self.batch_texts.lines("mein_batch_texts", "")
        yield from _head("mein_batch_seconds", "histogram", "Time that the model took for a batch.")
        yield from self.batch_seconds.lines("mein_batch_seconds", "")

    def _standing(self) -> Iterator[str]:
        yield from _head("mein_requests_in_flight", "gauge", "Requests that are being answered.")
        yield f"mein_requests_in_flight {self.in_flight}"
        yield from _head("mein_waiting_texts", "gauge", "Texts that wait for the model.")
        yield f"mein_waiting_texts {self.waiting_texts}"
        memory = resident_bytes()
        if memory is not None:
            yield from _head("process_resident_memory_bytes", "gauge", "Resident memory.")
            yield f"process_resident_memory_bytes {memory}"


def resident_bytes(process: int | str = "self") -> int | None:
    """The memory that a process holds now; none where the system does not tell."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except OSError:
        return None
    return next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"
