"""The tasks: a catalogue of seventeen, an entry point for any other, and populations of them."""

from sasr.tasks.catalogue import TASKS, Task, find, register
from sasr.tasks.environment import make, sparse

__all__ = ["TASKS", "Task", "find", "make", "register", "sparse"]
