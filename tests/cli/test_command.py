from __future__ import annotations

import subprocess
import sys


def test_the_command_is_installed_and_explains_itself() -> None:
    found = subprocess.run([sys.executable, "-m", "sasr", "--help"], capture_output=True, text=True, check=True)
    assert "doctor" in found.stdout


def test_importing_the_library_loads_no_heavy_extra() -> None:
    code = (
        "import sys, sasr; "
        "print([m for m in ('torch', 'stable_baselines3', 'mujoco', 'ale_py', 'matplotlib') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
