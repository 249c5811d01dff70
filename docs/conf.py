"""Sphinx settings of the documentation; `make docs` builds it into docs/_build/html."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import sasr

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]
os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")

project = "sasr"
author = "the sasr developers"
copyright = author
release = version = sasr.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "generated_reference",
]
exclude_patterns = ["_build"]
source_suffix = {".md": "myst-nb"}
default_role = "literal"  # docstrings write `name` for code

myst_enable_extensions = ["dollarmath", "attrs_inline", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "auto"  # notebooks run, plain pages have nothing to run
nb_execution_timeout = 600  # of one cell, on a busy machine; two idle cores need less than two minutes for a page
nb_execution_raise_on_error = True
nb_execution_show_tb = True

nitpicky = True
# Types of torch, numpy and Gymnasium are on other sites, and a build must not need the network.
nitpick_ignore_regex = [("py:.*", ".*")]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"sasr {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]


def _link_to_the_diary(app: Sphinx, page: str, source: list[str]) -> None:
    """The diary lies in results/diary, outside the documentation: its copy here is what links lead to."""
    source[0] = source[0].replace("../results/diary/", "diary/")
    if page.startswith("diary/"):
        source[0] = source[0].replace("../../docs/", "../")


def _escape_asterisks(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Shapes such as (P, *obs_shape) are no emphasis."""
    lines[:] = [line.replace("*", r"\*") for line in lines]


def setup(app: Sphinx) -> None:
    """Copy the diary in, and connect the two changes of text above."""
    shutil.copytree(HERE.parent / "results" / "diary", HERE / "diary", dirs_exist_ok=True)
    app.connect("source-read", _link_to_the_diary)
    app.connect("autodoc-process-docstring", _escape_asterisks, priority=400)  # before napoleon reads them
