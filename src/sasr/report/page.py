"""One HTML file with data, styles, scripts and plotly.js in it, so that it opens from disk, offline."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

from sasr.errors import need
from sasr.files import check_writable, write_whole
from sasr.report.page_data import payload
from sasr.report.read import Collection, References
from sasr.report.summary import Summary, summarise

SCRIPTS = ("data.js", "plotly.js", "charts.js", "tables.js", "parts.js", "controls.js")


def write_page(
    collection: Collection,
    out: str | Path,
    *,
    title: str = "",
    command: str = "",
    reference: References | None = None,
    summary: Summary | None = None,
    seed: int = 0,
) -> Path:
    """Write the HTML page of a collection.

    Args:
        collection: Results, runs, maps and videos; see `collect`.
        out: The HTML file.
        title: Its headline; empty takes the names of methods and tasks.
        command: The command that writes this page, shown at its end.
        reference: Curves for comparison.
        summary: The statistics of the collection, if they are known already.
        seed: Seed of all bootstrap intervals.
    """
    need_page()
    path = Path(out)
    check_writable(path.parent)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name an HTML file with --out")
    if summary is None:
        summary = summarise(collection, seed=seed)
    data = payload(collection, summary, out=path, reference=reference, seed=seed)
    write_whole(path, render(data, title=title or headline(summary), command=command, plotly=packed_script()))
    return path


def need_page() -> None:
    """Raise unless pages can be written."""
    need("plotly", "jinja2", extra="report", to="write the page")


def headline(summary: Summary) -> str:
    """The methods and tasks of a report, or how many there are."""
    methods = ", ".join(summary.methods)
    if len(summary.methods) > 3:
        methods = f"{len(summary.methods)} methods"
    tasks = " and ".join(summary.tasks)
    if len(summary.tasks) > 2:
        tasks = f"{len(summary.tasks)} tasks"
    return f"{methods} on {tasks}"


def render(data: dict[str, Any], *, title: str, command: str, plotly: str) -> str:
    """The page's text."""
    import jinja2

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
    results = data["results"]
    return {
        "tasks": len(data["tasks"]),
        "methods": len(data["methods"]),
        "runs": sum(len(result["seeds"]) for result in results),
        "incomplete": sum(bool(result["gaps"]) for result in results),
        "problems": len(data["problems"]),
    }


def embedded_json(data: dict[str, Any]) -> str:
    """JSON that cannot end the script element around it, whatever a file's name or a command contains."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


DRAWN = ("heatmap",)
"""Plotly's trace types on the page, besides scatter, which is in its core."""
_NAME = r"[\w$]+"
_MODULE = rf'var ({_NAME})={_NAME}\(\({_NAME},{_NAME}\)=>\{{"use strict";{_NAME}\.exports='
# The last module, plotly's entry point: it registers one module for each trace type.
TRACE_TYPES = re.compile(
    rf"\.register\(\[((?:{_NAME}\(\),?)+)\]\);{_NAME}\.exports={_NAME}\}}\);return {_NAME}\(\);\}}\)\(\);"
)


@functools.cache
def packed_script() -> str:
    """plotly.js with the trace types of the page alone, as gzip in base64."""
    script = in_parentheses(with_traces(plotly_script().rstrip(), DRAWN))
    # Escaped to ASCII: with the few signs of calendars, browsers would store two bytes a character.
    return base64.b64encode(gzip.compress(script.encode("ascii", "backslashreplace"), mtime=0)).decode()


def plotly_script() -> str:
    """plotly.js as the plotly package ships it."""
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text


def with_traces(script: str, trace_types: tuple[str, ...]) -> str:
    """The script with these trace types alone: others, such as maps, take most of plotly's time to start."""
    registered = TRACE_TYPES.search(script)
    if not registered:
        return script
    modules = [_module_of(trace_type, script) for trace_type in trace_types]
    if not set(modules) <= set(registered[1].split(",")):
        return script
    return script[: registered.start(1)] + ",".join(modules) + script[registered.end(1) :]


def _module_of(trace_type: str, script: str) -> str:
    """The call that returns a trace type's module; empty if there is none."""
    inner = re.search(rf'{_MODULE}\{{[^{{}}]*moduleType:"trace",name:"{trace_type}"', script)
    if inner is None:
        return ""
    outer = re.search(rf"{_MODULE}{re.escape(inner[1])}\(\)\}}\)", script)
    return f"{outer[1]}()" if outer else ""


def in_parentheses(script: str) -> str:
    """The script with parentheses around its outer function, which V8 then compiles in one pass.

    Without them V8 reads the function twice: to find its end, and when it is called.
    """
    before, inside, after = script.partition(", () => {\n")
    if not inside or len(before) > 1_000 or not after.endswith("\n}));"):
        return script
    return f"{before}, (() => {{\n{after.removesuffix('));')})));"
