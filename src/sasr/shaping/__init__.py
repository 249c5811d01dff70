"""From counts to shaped rewards."""

from sasr.shaping.base import RewardShaper, Shaper
from sasr.shaping.beta import beta_draw, beta_mean
from sasr.shaping.checks import check_shaper
from sasr.shaping.diagnosis import Diagnosis, diagnose, suggest
from sasr.shaping.image_diagnosis import ImageDiagnosis, diagnose_images
from sasr.shaping.presets import PRESETS, SasrConfig, preset_config
from sasr.shaping.sasr import SASR

__all__ = [
    "PRESETS",
    "SASR",
    "Diagnosis",
    "ImageDiagnosis",
    "RewardShaper",
    "SasrConfig",
    "Shaper",
    "beta_draw",
    "beta_mean",
    "check_shaper",
    "diagnose",
    "diagnose_images",
    "preset_config",
    "suggest",
]
