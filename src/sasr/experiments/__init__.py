"""Many runs: plans of tasks × methods × seeds, the paper's suites, and runners that carry them out."""

from sasr.experiments.method import Method, built_in_methods
from sasr.experiments.plan import Cell, Plan

__all__ = ["Cell", "Method", "Plan", "built_in_methods"]
