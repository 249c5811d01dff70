"""Export of a run for others: its policy and a model card; loading it runs no code."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sasr.errors import need
from sasr.files import check_writable, read_regular, write_whole
from sasr.final_evaluation import NAME as EVALUATION
from sasr.logs import plots
from sasr.logs.console import number
from sasr.logs.metrics import read_metrics
from sasr.logs.run_folder import CONFIG_BYTES, RunFolder
from sasr.policy import PART, Policy, acting_tensors, load_policy
from sasr.training import checkpoint

CARD = "README.md"


def export_run(run: str | Path | RunFolder, to: str | Path) -> Path:
    """Write a run's policy and a model card into a new folder, which `sasr.load` reads; an error leaves none.

    Args:
        run: The run, or its folder.
        to: The new folder.
    """
    to = Path(to)
    if to.exists():
        raise FileExistsError(f"{to} exists already; name another folder, or move this one away")
    policy = load_policy(run)
    check_writable(to.parent, flag="--to")
    facts = {"steps": policy.steps, "run": policy.folder.facts}
    beside = to.with_name(f".{to.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        made = checkpoint.write(beside, {PART: acting_tensors(policy.agent)}, facts)
        for file in _pictures(policy.folder.path):
            shutil.copyfile(file, made / file.name)
        write_whole(made / CARD, "\n".join(_card(policy)))
        made.rename(to)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return to


def push_to_hub(folder: Path, name: str, *, private: bool = False) -> str:
    """Upload an exported folder to the Hugging Face Hub as `name` (OWNER/MODEL); returns its address."""
    check_hub(name)
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo(repo_id=name, private=private, exist_ok=True)
    return str(api.upload_folder(repo_id=name, folder_path=str(folder), commit_message="Policy, evaluation and card"))


def check_hub(name: str) -> None:
    """Raise if an upload under this name could not begin."""
    owner, _, model = name.partition("/")
    if not owner or not model or "/" in model:
        raise ValueError(f"{name!r} is not the name of a model on the hub; write OWNER/MODEL")
    need("huggingface_hub", extra="hub", to="upload to the hub")


def _pictures(folder: Path) -> list[Path]:
    named = [folder / name for name in (plots.CURVE, plots.MAPS, EVALUATION)]
    return [file for file in [*named, *sorted(folder.glob("video-seed-*.mp4"))] if file.is_file()]


def _card(policy: Policy) -> Iterator[str]:
    """The lines of the model card."""
    folder, config = policy.folder, policy.folder.config
    files = [file.name for file in _pictures(folder.path)]
    evaluation = _newest_evaluation(policy)
    yield from _front_matter(config.task, evaluation)
    yield f"# {config.agent} with shaper {config.shaper} on {config.task}\n"
    seeds = "one seed" if len(config.seeds) == 1 else f"{len(config.seeds)} seeds"
    yield f"A policy of [sasr](https://arxiv.org/abs/2408.03029), {seeds}, after {policy.steps:,} steps of each.\n"
    yield "## How good it is\n"
    yield from _table(evaluation)
    if plots.CURVE in files:
        yield f"![Returns during training]({plots.CURVE})\n"
    yield from (f"[One episode]({name})\n" for name in files if name.endswith(".mp4"))
    yield "## Use it\n"
    yield '```python\nimport sasr\n\npolicy = sasr.load("path/to/this/folder")  # runs no code of the folder\'s'
    if policy.frame_stack == 1:
        yield "action, _ = policy.predict(observation)  # of the task as sasr.tasks.make gives it\n```\n"
    else:
        yield "frames = None  # at the start of an episode"
        yield "action, frames = policy.predict(observation, frames)  # of the task as sasr.tasks.make gives it\n```\n"
    yield "## How it was trained\n"
    yield f"```bash\n{folder.facts.get('command', 'unknown')}\n```\n"
    versions = folder.facts.get("versions", {})
    yield ", ".join(f"{name} {version}" for name, version in versions.items()) + ".\n"
    settings = json.dumps(folder.facts["config"], indent=1)
    yield f"<details><summary>All settings</summary>\n\n```json\n{settings}\n```\n\n</details>\n"


def _front_matter(task: str, evaluation: Mapping[str, Any]) -> Iterator[str]:
    """Metadata for the hub: tags and the result. It is YAML, of which JSON is a part."""
    metric = {"type": "mean_reward", "name": "mean return", "value": evaluation.get("return")}
    result = {"task": {"type": "reinforcement-learning"}, "dataset": {"name": task, "type": task}, "metrics": [metric]}
    yield "---\nlibrary_name: sasr\ntags: " + json.dumps(["reinforcement-learning", "reward-shaping", "sasr", task])
    if evaluation:
        yield "model-index: " + json.dumps([{"name": f"sasr on {task}", "results": [result]}])
    yield "---\n"


def _table(evaluation: Mapping[str, Any]) -> Iterator[str]:
    if not evaluation:
        yield "Not evaluated: `sasr eval RUN` before the export adds a table here.\n"
        return
    yield "| evaluation | episodes of each seed | mean return | success rate |\n|---|---|---|---|"
    mean = number(evaluation["return"])
    yield f"| {evaluation['what']} | {evaluation['episodes']} | {mean} | {evaluation['success']:.0%} |\n"


def _newest_evaluation(policy: Policy) -> dict[str, Any]:
    """The result of `sasr eval` for these weights, or of training's last evaluation; empty without one."""
    folder, seeds = policy.folder, len(policy.seeds)
    try:
        data = json.loads(read_regular(folder.path / EVALUATION, CONFIG_BYTES))
        if data["step"] == policy.steps:
            row = data["rows"][-1]
            return _result("sasr eval", data["episodes"], row["return_mean"], row["success_rate"])
    except (OSError, ValueError, LookupError, TypeError):
        pass  # there is none, or it is damaged
    curve = plots.evaluation_curve(read_metrics(folder.path, "evaluation"), seeds)
    if not len(curve.steps):
        return {}
    what = f"in training, at step {curve.steps[-1]:,}"
    return _result(what, folder.config.eval_episodes, curve.returns[:, -1].mean(), curve.success[:, -1].mean())


def _result(what: str, episodes: int, mean: float, success: float) -> dict[str, Any]:
    if not math.isfinite(mean + success):
        return {}
    return {"what": what, "episodes": int(episodes), "return": float(mean), "success": float(success)}
