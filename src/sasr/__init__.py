"""Self-adaptive success-rate reward shaping (SASR) for sparse-reward reinforcement learning."""

from sasr.tasks.catalogue import register as _register_tasks

__version__ = "0.1.0"
__all__ = ["__version__"]

_register_tasks()
