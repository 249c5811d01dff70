"""The tasks page: it covers the catalogue, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sasr.tasks.catalogue import EVERY, VARIANTS

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"


def test_the_page_has_every_task_with_its_picture_and_figures() -> None:
    text = PAGE.read_text()
    for task in EVERY:
        assert f"## {task.name}\n" in text
        assert (PAGE.parent / "tasks" / f"{task.name}.png").stat().st_size > 1000
    for id, variant in VARIANTS.items():
        rules = f"| `{id}` | {variant.success} | {variant.ends} | {variant.horizon} |"
        assert re.search(re.escape(rules) + r" [\d×]+ \| \S+ ± .* \| \d+% \|", text)
    assert sum(picture.stat().st_size for picture in (PAGE.parent / "tasks").iterdir()) < 1_500_000


def test_the_pages_example_runs() -> None:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code.group(1), names)
    names["env"].reset(seed=0)
    assert names["env"].step(names["env"].action_space.sample())[1] in (0.0, 1.0)
