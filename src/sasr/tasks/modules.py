"""Which modules may be imported: a task's name may begin with one, and importing it runs its code.

A name that a user types may begin with any module, also one in the current folder. One that stands in a run's folder,
which may be somebody else's, may begin only with what is installed, what this program has imported already, and what
its user allows by name. A function in it, which only making an environment would call, needs to be allowed every time.
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
from pathlib import Path

import gymnasium as gym

FLAG = "--allow-import"


class ForeignModuleError(ImportError):
    """A module that a run's folder names, and that nobody allowed."""


def import_module(module: str) -> None:
    """Import what a user named, from wherever Python finds it; where nothing else has that name, the current folder."""
    _check_name(module)
    here = str(Path.cwd())
    if not _findable(module.partition(".")[0]) and here not in sys.path:
        sys.path.append(here)  # for good: the module may import its neighbours later, and so do worker processes
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"there is no module {error.name!r}, neither installed nor in the current folder {here}"
        ) from error


def import_of_run(task: str, allowed: Sequence[str] = ()) -> None:
    """Import the module that a run's task names, if it may be; `ForeignModuleError` names the flag that allows it.

    Args:
        task: The id, such as `module:Id` or `module:function`; one without a module needs no import.
        allowed: Modules that the user trusts, each with all that is in it.
    """
    module, _, name = task.rpartition(":")
    if not module:
        return
    _check_name(module)
    if any(f"{module}.".startswith(f"{own}.") for own in allowed):
        import_module(module)
        return
    fix = f"If you trust it, add {FLAG} {module} (in Python: allow_import=[{module!r}], or give the task itself)"
    if module not in sys.modules and not _import_installed(module):
        raise ForeignModuleError(
            f"the run's task is {task}, and the module {module} is not installed here; importing it runs its code. "
            f"{fix}"
        )
    if name not in gym.registry and _is_function(getattr(sys.modules[module], name, None)):
        raise ForeignModuleError(f"the run's task is {task}, a function; calling it runs its code. {fix}")


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


def _findable(module: str) -> bool:
    if module in sys.modules:
        return True
    return importlib.util.find_spec(module) is not None


def _is_function(found: object) -> bool:
    """Whether making a task of it would call more than the constructor of an environment."""
    return found is not None and not (isinstance(found, type) and issubclass(found, gym.Env))


def _check_name(module: str) -> None:
    if module.endswith(".py"):
        raise ValueError(f"{module!r} is a file's name; leave out .py: {module.removesuffix('.py')}:…")
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{module!r} is no module's name; write a task of a package as package.module:Id")
