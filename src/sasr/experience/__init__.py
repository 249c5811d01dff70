"""From environment steps to retained states of successes and failures."""

from sasr.experience.retained import FAILURE, OUTCOMES, SUCCESS
from sasr.experience.segments import Segment, Segmenter
from sasr.experience.types import Batch, Host, ReplayView, Transition

__all__ = ["FAILURE", "OUTCOMES", "SUCCESS", "Batch", "Host", "ReplayView", "Segment", "Segmenter", "Transition"]
