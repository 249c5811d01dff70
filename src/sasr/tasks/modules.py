"""Which modules may be imported: a task's id names one, and importing it runs its code.

An id that a user types may name any module. One that stands in a run's folder, which may be somebody else's, may name
only what is installed, what this program has imported already, and what its user allows by name.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

FLAG = "--allow-import"


class ForeignModuleError(ImportError):
    """A module that a run's folder names, and that nobody allowed."""


def import_module(module: str) -> None:
    """Import what a user named, from wherever Python finds it."""
    _check_name(module)
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f"there is no module {error.name!r}; is it installed?") from error


def import_of_run(task: str, allowed: Sequence[str] = ()) -> None:
    """Import the module that a run's task names, if it may be; `ForeignModuleError` names the flag that allows it.

    Args:
        task: The id, such as `module:Id`; one without a module needs no import.
        allowed: Modules that the user trusts, each with all that is in it.
    """
    module = task.rpartition(":")[0]
    if not module:
        return
    _check_name(module)
    if any(f"{module}.".startswith(f"{name}.") for name in allowed):
        import_module(module)
    elif module not in sys.modules and not _import_installed(module):
        raise ForeignModuleError(
            f"the run's task is {task}, and the module {module} is not installed here; importing it runs its code. "
            f"If you trust it, add {FLAG} {module} (in Python, import it first)"
        )


def import_plugin(module: str) -> str:
    """Import an optional package if it is installed; why it can't be imported, or an empty text.

    A folder of that name beside the user's own files is not it.
    """
    try:
        _import_installed(module)
    except Exception as error:  # of a package that needs another one, say
        return f"{module} can't be imported: {error}"
    return ""


def _import_installed(module: str) -> bool:
    top, _, inner = module.partition(".")
    # The standard library has no environments, but modules that do something when they are imported.
    if top in sys.stdlib_module_names or "__main__" in inner.split("."):
        return False
    with _installed_only():
        if importlib.util.find_spec(top) is None:
            return False
        import_module(module)
    return True


@contextmanager
def _installed_only() -> Iterator[None]:
    """Without the current folder, a script's own one and PYTHONPATH on the path."""
    before = sys.path[:]
    sys.path[:] = _installed_path()
    try:
        yield
    finally:
        sys.path[:] = before


@cache
def _installed_path() -> list[str]:
    """Where a Python that was only just installed would look."""
    ask = [sys.executable, "-E", "-P", "-c", "import json, sys; print(json.dumps(sys.path))"]
    answer = subprocess.run(ask, capture_output=True, text=True, check=True, timeout=60).stdout
    path: list[str] = json.loads(answer)
    return path


def _check_name(module: str) -> None:
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{module!r} is no module's name; write a task of a package as package.module:Id")
