"""Self-adaptive success-rate reward shaping (SASR) for sparse-reward reinforcement learning."""

__version__ = "0.1.0"
__all__ = ["__version__"]
