"""Many runs: plans of tasks × methods × seeds, the paper's suites, and runners that carry them out."""

from sasr.experiments.plan import Cell, Method, Plan, built_in_methods

__all__ = ["Cell", "Method", "Plan", "built_in_methods"]
