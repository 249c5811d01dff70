"""Which OpenGL a MuJoCo picture is drawn with."""

from __future__ import annotations

import ctypes
import os
import sys

_LIBRARIES = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}
_PACKAGES = {"egl": "libegl1 libegl-mesa0 libgl1-mesa-dri", "osmesa": "libosmesa6"}


def choose() -> str | None:
    """Set `MUJOCO_GL` to EGL, else OSMesa, where nobody chose and there is no display; say what it is now."""
    chosen = os.environ.get("MUJOCO_GL")
    if chosen or _on_screen() or sys.platform != "linux":
        return chosen
    for backend in _LIBRARIES:
        if loads(backend):
            os.environ["MUJOCO_GL"] = backend
            return backend
    return None


def require(render_mode: str | None) -> None:
    """Raise, naming the Debian packages, when pictures are asked for and no OpenGL library can draw them."""
    if render_mode is None or sys.platform != "linux":
        return
    chosen = choose()
    if chosen in _LIBRARIES and not loads(chosen):
        problem = f"MUJOCO_GL={chosen} is set, but {_LIBRARIES[chosen]} does not load"
    elif chosen is None and not _on_screen():
        problem = "there is neither a display nor EGL"
    else:
        return
    package = _PACKAGES[chosen or "egl"]
    raise ImportError(f"render_mode={render_mode!r}: {problem}; on Debian: apt install {package}")


def _on_screen() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def loads(backend: str) -> bool:
    """Whether the system has the library that a backend draws with."""
    try:
        ctypes.CDLL(_LIBRARIES[backend])
    except OSError:
        return False
    return True
