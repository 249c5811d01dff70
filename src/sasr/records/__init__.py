"""What a run leaves behind: its folder, metrics, TensorBoard events, pictures, and what a person watches meanwhile."""

from sasr.records.folder import RunFolder
from sasr.records.many import Many
from sasr.records.metrics import MetricsFile, read_metrics

__all__ = ["Many", "MetricsFile", "RunFolder", "read_metrics"]
