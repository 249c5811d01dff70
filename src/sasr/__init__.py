"""Self-adaptive success-rate reward shaping (SASR) for sparse-reward reinforcement learning."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sasr.tasks.catalogue import register as _register_tasks

if TYPE_CHECKING:
    from sasr.api import Run, load, resume, train
    from sasr.evidence.bandwidth import LinearSchedule
    from sasr.experience.types import Batch, Host, Transition
    from sasr.shaping.base import RewardShaper, Shaper
    from sasr.shaping.checks import check_shaper
    from sasr.shaping.diagnosis import Diagnosis, diagnose
    from sasr.shaping.image_diagnosis import diagnose_images
    from sasr.shaping.presets import SasrConfig
    from sasr.shaping.sasr import SASR

__version__ = "0.1.0"
__all__ = [
    "SASR",
    "Batch",
    "Diagnosis",
    "Host",
    "LinearSchedule",
    "RewardShaper",
    "Run",
    "SasrConfig",
    "Shaper",
    "Transition",
    "__version__",
    "check_shaper",
    "diagnose",
    "diagnose_images",
    "load",
    "resume",
    "train",
]

# Loaded at first use: a worker process that only steps an environment should not pay for torch.
_HOME = {
    "SASR": "shaping.sasr",
    "Batch": "experience.types",
    "Diagnosis": "shaping.diagnosis",
    "Host": "experience.types",
    "LinearSchedule": "evidence.bandwidth",
    "RewardShaper": "shaping.base",
    "Run": "api",
    "SasrConfig": "shaping.presets",
    "Shaper": "shaping.base",
    "Transition": "experience.types",
    "check_shaper": "shaping.checks",
    "diagnose": "shaping.diagnosis",
    "diagnose_images": "shaping.image_diagnosis",
    "load": "api",
    "resume": "api",
    "train": "api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sasr' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sasr.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


_register_tasks()
