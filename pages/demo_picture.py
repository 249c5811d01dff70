"""Write docs/demo.png: the demo's learning curve beside that of the same agent without SASR.

python -m pages.demo_picture FOLDER    a folder with both runs of docs/start/first_run.md
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from sasr.report.figures import learning_curves, panels_of
from sasr.report.read import collect

OUT = Path(__file__).parents[1] / "docs" / "demo.png"


def main(folder: Annotated[Path, tyro.conf.Positional], out: Path = OUT) -> None:
    """Draw the runs' curves.

    Args:
        folder: Where the runs are.
        out: The picture.
    """
    learning_curves(panels_of(collect(folder))).savefig(out, dpi=150)


if __name__ == "__main__":
    tyro.cli(main)
