"""From retained states to counts of how often a state was visited in successes and in failures."""

from sasr.evidence.bandwidth import LinearSchedule
from sasr.evidence.counts import Counts, LinearCounts
from sasr.evidence.evidence import Evidence
from sasr.evidence.exact_counts import ExactCounts
from sasr.evidence.feature_count import features_for_error, search_feature_count
from sasr.evidence.features import RandomFeatures, StateNormaliser
from sasr.evidence.kernels import KERNELS, Cauchy, Gaussian, Kernel, Laplacian
from sasr.evidence.places import PlaceCounts, PlaceFeatures
from sasr.evidence.squared_counts import SquaredCounts

__all__ = [
    "KERNELS",
    "Cauchy",
    "Counts",
    "Evidence",
    "ExactCounts",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "LinearCounts",
    "LinearSchedule",
    "PlaceCounts",
    "PlaceFeatures",
    "RandomFeatures",
    "SquaredCounts",
    "StateNormaliser",
    "features_for_error",
    "search_feature_count",
]
