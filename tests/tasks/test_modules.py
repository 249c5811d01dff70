"""Which modules a run's folder may have imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sasr.tasks import make
from sasr.tasks.modules import ForeignModuleError, import_of_run, import_plugin


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A function that puts a package into the current folder, which is on the path; it notes that it was imported."""

    def write(name: str) -> None:
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "tasks.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    yield write
    for name in [name for name in sys.modules if name.startswith("their_")]:
        del sys.modules[name]


def test_a_module_of_the_current_folder_is_refused_by_the_flag_that_allows_it(
    own_module: Callable[[str], None], tmp_path: Path
) -> None:
    own_module("their_package")
    with pytest.raises(ForeignModuleError, match=r"--allow-import their_package\.tasks"):
        import_of_run("their_package.tasks:Id-v0")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("allowed", ["their_package", "their_package.tasks"])
def test_an_allowed_module_is_imported_with_what_is_in_it(
    own_module: Callable[[str], None], tmp_path: Path, allowed: str
) -> None:
    own_module("their_package")
    with pytest.raises(ForeignModuleError):
        import_of_run("their_package.tasks:Id-v0", ["their_pack", "package", "their_package.tasks.more"])
    import_of_run("their_package.tasks:Id-v0", [allowed])
    assert (tmp_path / "ran").exists()


def test_what_is_installed_or_imported_already_needs_no_leave(
    own_module: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    import_of_run("gymnasium_robotics:FetchReach-v4")
    import_of_run("Pendulum-v1")
    own_module("their_package")
    monkeypatch.setitem(sys.modules, "their_package.tasks", sys)
    import_of_run("their_package.tasks:Id-v0")


@pytest.mark.parametrize("module", ["antigravity", "pip.__main__", "not_there_at_all"])
def test_modules_that_hold_no_environments_are_refused(module: str) -> None:
    with pytest.raises(ForeignModuleError, match="not installed here"):
        import_of_run(f"{module}:Id-v0")
    assert module not in sys.modules


@pytest.mark.parametrize("module", ["..secrets", "a b", "x;rm -rf ~", "a..b", "./evil"])
def test_a_name_that_is_no_modules_is_refused(module: str) -> None:
    with pytest.raises(ValueError, match="is not a module's name"):
        import_of_run(f"{module}:Id-v0", [module])
    with pytest.raises((ValueError, ImportError), match="is not a module's name"):
        make(f"{module}:Id-v0")


def test_a_plugin_that_cannot_be_imported_is_the_reason_for_an_unknown_task() -> None:
    code = "import sys; sys.modules['mujoco'] = None; from sasr.tasks import make; make('NoSuchTask-v0')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "unknown task 'NoSuchTask-v0'" in ran.stderr
    assert "gymnasium_robotics can't be imported: MuJoCo is not installed" in ran.stderr


def test_a_folder_called_like_a_plugin_is_not_imported(own_module: Callable[[str], None], tmp_path: Path) -> None:
    own_module("their_package")
    import_plugin("their_package.tasks")
    assert not (tmp_path / "ran").exists()
    assert import_plugin("gymnasium_robotics") == ""
    assert "gymnasium_robotics" in sys.modules


@pytest.mark.parametrize("task", ["os:abort", "shutil:rmtree", "gymnasium:make", "sasr.tasks.environment:sparse"])
def test_a_run_folder_may_not_have_a_function_called_unasked(task: str) -> None:
    with pytest.raises(ForeignModuleError, match=f"a function.*--allow-import {task.partition(':')[0]}"):
        import_of_run(task)


def test_a_run_folder_may_name_the_class_of_an_installed_environment() -> None:
    import_of_run("gymnasium.envs.classic_control.pendulum:PendulumEnv")
