"""Many runs: plans of tasks × methods × seeds, the paper's suites, and runners that carry them out."""

from sasr.experiments.plan import GridRun, Method, Plan, built_in_methods

__all__ = ["GridRun", "Method", "Plan", "built_in_methods"]
