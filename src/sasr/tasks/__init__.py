"""The tasks: a catalogue of seventeen, an entry point for any other, and populations of them."""

from sasr.tasks.any_environment import make, sparse
from sasr.tasks.catalogue import TASKS, Task, find, register

__all__ = ["TASKS", "Task", "find", "make", "register", "sparse"]
