"""plotly.js for the page: as its package ships it, made to start fast, and packed.

As shipped it takes browsers longer to start than everything else on the page together. Both changes look for the form
that its bundles have; one of another form is left as it is, which is slower and all right.
"""

from __future__ import annotations

import base64
import functools
import gzip
import re

INSTALL = 'the page needs plotly and jinja2: pip install "sasr[report]"'
DRAWN = ("heatmap",)
"""Kinds of traces on the page, besides scatter, which is in plotly's core."""
_NAME = r"[\w$]+"
_MODULE = rf'var ({_NAME})={_NAME}\(\({_NAME},{_NAME}\)=>\{{"use strict";{_NAME}\.exports='
# The last module, which everything begins with: it hands one module for each kind of trace to the core.
_KINDS = re.compile(
    rf"\.register\(\[((?:{_NAME}\(\),?)+)\]\);{_NAME}\.exports={_NAME}\}}\);return {_NAME}\(\);\}}\)\(\);"
)


@functools.cache
def packed_script() -> str:
    """The script as gzip in base64."""
    script = _read_once(_of_kinds(plotly_script().rstrip(), DRAWN))
    # A few signs of calendars would make the whole script one of two bytes a letter.
    return base64.b64encode(gzip.compress(script.encode("ascii", "backslashreplace"), mtime=0)).decode()


def plotly_script() -> str:
    """plotly.js as the plotly package ships it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ImportError(INSTALL) from None
    text: str = get_plotlyjs()
    return text


def _of_kinds(script: str, kinds: tuple[str, ...]) -> str:
    """Starting these kinds of traces alone: maps, WebGL and the others are most of what plotly does at its start."""
    found = _KINDS.search(script)
    if not found:
        return script
    modules = [_module_of(kind, script) for kind in kinds]
    if not set(modules) <= set(found[1].split(",")):
        return script
    return script[: found.start(1)] + ",".join(modules) + script[found.end(1) :]


def _module_of(kind: str, script: str) -> str:
    """The call that gives a kind's module; empty where it is not found."""
    inner = re.search(rf'{_MODULE}\{{[^{{}}]*moduleType:"trace",name:"{kind}"', script)
    outer = inner and re.search(rf"{_MODULE}{re.escape(inner[1])}\(\)\}}\)", script)
    return f"{outer[1]}()" if outer else ""


def _read_once(script: str) -> str:
    """With parentheses around the function that everything is in: V8 then compiles it while it reads it first.

    Without them it reads the function to find its end, and all of it again when it is called.
    """
    before, inside, after = script.partition(", () => {\n")
    if not inside or len(before) > 1_000 or not after.endswith("\n}));"):
        return script
    return f"{before}, (() => {{\n{after.removesuffix('));')})));"
