"""One HTML file with everything in it: data, styles, scripts and plotly.js, so that it opens from disk, offline."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from sasr.files import check_writable, write_whole
from sasr.report.page_data import payload
from sasr.report.plotly_js import INSTALL, packed_script
from sasr.report.read import Collection
from sasr.report.reference import References
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
        data=_embedded(data),
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


def _embedded(data: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in, whatever a file's name or a command says."""
    text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
