"""Self-adaptive success-rate reward shaping (SASR) for sparse-reward reinforcement learning."""

from sasr.evidence import LinearSchedule
from sasr.experience import Batch, Host, Transition
from sasr.shaping import SASR, Diagnosis, RewardShaper, SasrConfig, check_shaper, diagnose
from sasr.tasks.catalogue import register as _register_tasks

__version__ = "0.1.0"
__all__ = [
    "SASR",
    "Batch",
    "Diagnosis",
    "Host",
    "LinearSchedule",
    "RewardShaper",
    "SasrConfig",
    "Transition",
    "__version__",
    "check_shaper",
    "diagnose",
]

_register_tasks()
