"""Which modules may be imported: a task's name may begin with one, and importing it runs its code.

A name that a user types may begin with any module, also in the current folder. A name in a run folder, which may come
from others, may only begin with a module that is installed, imported already, or allowed by the user. If it names a
function, the user has to allow it in any case.
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
    """A run folder names a module that is not allowed."""


def import_module(module: str) -> None:
    """Import a module that the user named; the current folder is searched last."""
    _check_name(module)
    here = str(Path.cwd())
    top = module.partition(".")[0]
    findable = top in sys.modules or importlib.util.find_spec(top) is not None
    if not findable and here not in sys.path:
        sys.path.append(here)  # not removed again: the module may import its neighbours later, and so do workers
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"there is no module {error.name!r}, neither installed nor in the current folder {here}"
        ) from error


def import_of_run(task: str, allowed: Sequence[str] = ()) -> None:
    """Import the module that a run's task names, if it is allowed; `ForeignModuleError` names the flag to allow it.

    Args:
        task: The id, such as `module:Id` or `module:function`; one without a module needs no import.
        allowed: Modules that the user trusts, each with all that is in it.
    """
    module, _, name = task.rpartition(":")
    if not module:
        return
    _check_name(module)
    if any(f"{module}.".startswith(f"{trusted}.") for trusted in allowed):
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
    """Import an optional package if it is installed; returns the reason if that fails, otherwise an empty text.

    A folder of that name in the current folder does not count.
    """
    try:
        _import_installed(module)
    except Exception as error:  # of a package that needs another one, say
        return f"{module} can't be imported: {error}"
    return ""


def _import_installed(module: str) -> bool:
    top, _, inner = module.partition(".")
    # The standard library has no environments, but modules with side effects on import.
    if top in sys.stdlib_module_names or "__main__" in inner.split("."):
        return False
    with _installed_only():
        if importlib.util.find_spec(top) is None:
            return False
        import_module(module)
    return True


@contextmanager
def _installed_only() -> Iterator[None]:
    """Import from installed packages alone: not from the current folder, a script's folder or PYTHONPATH."""
    before = sys.path[:]
    sys.path[:] = _installed_path()
    try:
        yield
    finally:
        sys.path[:] = before


@cache
def _installed_path() -> list[str]:
    """The search path of this Python without any additions."""
    ask = [sys.executable, "-E", "-P", "-c", "import json, sys; print(json.dumps(sys.path))"]
    answer = subprocess.run(ask, capture_output=True, text=True, check=True, timeout=60).stdout
    path: list[str] = json.loads(answer)
    return path


def _is_function(attribute: object) -> bool:
    """Whether it is something else to call than the class of an environment."""
    return attribute is not None and not (isinstance(attribute, type) and issubclass(attribute, gym.Env))


def _check_name(module: str) -> None:
    if module.endswith(".py"):
        raise ValueError(f"{module!r} is a file's name; leave out .py: {module.removesuffix('.py')}:…")
    if not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{module!r} is not a module's name; write a task of a package as package.module:Id")
