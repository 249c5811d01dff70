"""Logging of a run: its folder, metrics, TensorBoard events, plots and progress view."""

from sasr.logs.metrics import MetricsFile, read_metrics
from sasr.logs.recorders import Recorders
from sasr.logs.run_folder import RunFolder

__all__ = ["MetricsFile", "Recorders", "RunFolder", "read_metrics"]
