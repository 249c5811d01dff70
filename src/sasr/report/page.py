"""One HTML file with everything in it: data, styles, scripts and plotly.js, so that it opens from disk, offline."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

from sasr.files import check_writable, write_whole
from sasr.report.page_data import payload
from sasr.report.read import Collection, References
from sasr.report.summary import Summary, summarise

SCRIPTS = ("data.js", "plotly.js", "charts.js", "tables.js", "parts.js", "controls.js")


def write_page(
    found: Collection,
    out: str | Path,
    *,
    title: str = "",
    command: str = "",
    reference: References | None = None,
    summary: Summary | None = None,
    seed: int = 0,
) -> Path:
    """Write the page of what was found.

    Args:
        found: Results, runs, maps and films; see `collect`.
        out: The HTML file.
        title: Its headline; empty takes the tasks' names.
        command: The command that writes this page, shown at its end.
        reference: Curves to compare with.
        summary: The figures of `found`, where they are known already.
        seed: Of all bootstrap intervals.
    """
    plotly = packed_script()
    path = Path(out)
    check_writable(path.parent)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name an HTML file with --out")
    figures = summary or summarise(found, seed=seed)
    data = payload(found, figures, out=path, reference=reference, seed=seed)
    write_whole(path, render(data, title=title or headline(figures), command=command, plotly=plotly))
    return path


def headline(summary: Summary) -> str:
    """A title that says what is compared."""
    tasks, methods = summary.tasks, summary.methods
    on = " and ".join(tasks) if len(tasks) < 3 else f"{len(tasks)} tasks"
    return f"{', '.join(methods)} on {on}" if len(methods) < 4 else f"{len(methods)} methods on {on}"


def render(data: dict[str, Any], *, title: str, command: str, plotly: str) -> str:
    """The page's text."""
    try:
        import jinja2
    except ImportError:
        raise ImportError(INSTALL) from None
    parts = resources.files("sasr.report") / "page_parts"
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string((parts / "page.html").read_text(encoding="utf-8"))
    scripts = "\n".join((parts / name).read_text(encoding="utf-8") for name in SCRIPTS)
    return template.render(
        title=title,
        command=command,
        counts=_counts(data),
        data=embedded_json(data),
        style=(parts / "style.css").read_text(encoding="utf-8"),
        script=scripts,
        plotly=plotly,
    )


def _counts(data: dict[str, Any]) -> dict[str, int]:
    cells = data["cells"]
    return {
        "tasks": len(data["tasks"]),
        "methods": len(data["methods"]),
        "runs": sum(len(cell["seeds"]) for cell in cells),
        "incomplete": sum(bool(cell["gaps"]) for cell in cells),
        "problems": len(data["problems"]),
    }


def embedded_json(data: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in, whatever a file's name or a command says."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


INSTALL = 'the page needs plotly and jinja2: pip install "sasr[report]"'
DRAWN = ("heatmap",)
"""Kinds of traces on the page, besides scatter, which is in plotly's core."""
_NAME = r"[\w$]+"
_MODULE = rf'var ({_NAME})={_NAME}\(\({_NAME},{_NAME}\)=>\{{"use strict";{_NAME}\.exports='
# The last module, which everything begins with: it hands one module for each kind of trace to the core.
TRACE_KINDS = re.compile(
    rf"\.register\(\[((?:{_NAME}\(\),?)+)\]\);{_NAME}\.exports={_NAME}\}}\);return {_NAME}\(\);\}}\)\(\);"
)


@functools.cache
def packed_script() -> str:
    """The script as gzip in base64."""
    script = in_parentheses(with_traces(plotly_script().rstrip(), DRAWN))
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


def with_traces(script: str, kinds: tuple[str, ...]) -> str:
    """Starting these kinds of traces alone: maps, WebGL and the others are most of what plotly does at its start."""
    found = TRACE_KINDS.search(script)
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


def in_parentheses(script: str) -> str:
    """With parentheses around the function that everything is in: V8 then compiles it while it reads it first.

    Without them it reads the function to find its end, and all of it again when it is called.
    """
    before, inside, after = script.partition(", () => {\n")
    if not inside or len(before) > 1_000 or not after.endswith("\n}));"):
        return script
    return f"{before}, (() => {{\n{after.removesuffix('));')})));"
