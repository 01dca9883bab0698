"""Counts of a server, written as Prometheus reads them: the text format 0.0.4."""

import threading
from collections.abc import Callable, Mapping

# (kind, what it counts). Upper ends of the buckets of a histogram are in `BUCKETS`.
METRICS = {
    "t2t_requests_total": ("counter", "Answered requests by path and HTTP status."),
    "t2t_request_seconds": ("histogram", "Seconds from the receipt of a translation request to its answer."),
    "t2t_batch_sentences": ("histogram", "Sentences in a batch."),
    "t2t_refused_connections_total": ("counter", "Connections that were refused because there were too many."),
    "t2t_waiting_sentences": ("gauge", "Sentences that wait to be translated."),
    "t2t_loaded_models": ("gauge", "Models in memory."),
}
BUCKETS = {
    "t2t_request_seconds": (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    "t2t_batch_sentences": (1, 2, 4, 8, 16, 32, 64),
}


class Metrics:
    """The metrics of a server. All methods may be called by several threads.

    Args:
        gauges: functions that read the gauges, by name.
    """

    def __init__(self, gauges: Mapping[str, Callable[[], float]] | None = None):
        self.gauges, self._lock = dict(gauges or {}), threading.Lock()
        self._values: dict[str, dict[str, float]] = {name: {} for name in METRICS}  # By the end of a sample's name.
        for name, (kind, _) in METRICS.items():
            if kind == "counter" and name != "t2t_requests_total":
                self._values[name] = {"": 0}
            elif kind == "histogram":
                ends = (*(f'_bucket{{le="{bound:g}"}}' for bound in BUCKETS[name]), '_bucket{le="+Inf"}')
                self._values[name] = dict.fromkeys((*ends, "_sum", "_count"), 0)

    def count(self, name: str, **labels: str | int) -> None:
        """Adds 1 to a counter. Labels are words and numbers, which need no escapes."""
        end = ",".join(f'{label}="{value}"' for label, value in labels.items())
        end = f"{{{end}}}" if labels else ""
        with self._lock:
            self._values[name][end] = self._values[name].get(end, 0) + 1

    def observe(self, name: str, value: float) -> None:
        """Adds a value to a histogram."""
        bounds = (*(bound for bound in BUCKETS[name] if value <= bound), "+Inf")
        with self._lock:
            for bound in bounds:
                text = bound if isinstance(bound, str) else f"{bound:g}"
                self._values[name][f'_bucket{{le="{text}"}}'] += 1
            self._values[name]["_sum"] += value
            self._values[name]["_count"] += 1

    def text(self) -> str:
        """Returns all metrics as Prometheus reads them."""
        gauges = {name: {"": read()} for name, read in self.gauges.items()}
        with self._lock:
            values = {name: dict(samples) for name, samples in self._values.items()} | gauges
        lines = []
        for name, (kind, help) in METRICS.items():
            lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{end} {value:.10g}" for end, value in values[name].items()]
        return "\n".join(lines) + "\n"
