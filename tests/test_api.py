"""`sasr.train`, `sasr.resume` and `sasr.load` as a user calls them."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

import sasr
from sasr import SASR, Batch, Host, Transition, api
from sasr.agents import SacConfig
from sasr.agents.registry import AGENTS
from sasr.final_evaluation import evaluate_policy
from sasr.logs.recorders import Recorders
from sasr.tasks import sparse
from sasr.training import Trainer

TINY = SacConfig(hidden=(8, 8), burn_in=30, batch_size=16)


def train(out: Path, **changes: Any) -> sasr.Run:
    plain: dict[str, Any] = {
        "agent": TINY,
        "steps": 120,
        "eval_every": 60,
        "log_every": 20,
        "eval_episodes": 2,
        "workers": 0,
    }
    return sasr.train("Pendulum-v1", out=out, progress=False, events=False, **(plain | changes))


def told(run: sasr.Run) -> list[dict[str, Any]]:
    """What must not depend on being interrupted: all but times and notices."""
    return run.metrics("episode", "figures", "evaluation")


class StopError(Exception):
    """What cuts a run off in a test."""


def cut_at(step: int, how: Callable[[], None]) -> Callable[[pytest.MonkeyPatch], None]:
    def install(patch: pytest.MonkeyPatch) -> None:
        turned = Recorders.turned

        def cut(self: Recorders, steps: int) -> None:
            turned(self, steps)
            if steps == step:
                how()

        patch.setattr(Recorders, "turned", cut)

    return install


def test_a_run_has_its_folder_metrics_and_evaluation(tmp_path: Path) -> None:
    run = train(tmp_path / "run", seeds=2)
    assert run.folder == tmp_path / "run"
    assert run.finished
    assert run.steps == 120
    assert run.config.seeds == (0, 1)
    found = run.evaluation()
    assert found.steps.tolist() == [60, 120]
    assert found.returns.shape == found.success.shape == (2, 2)
    assert sasr.load(run).predict(np.zeros(3, np.float32))[0].shape == (1,)
    assert {path.name for path in run.folder.iterdir()} >= {"config.json", "metrics.jsonl", "checkpoints", "curve.png"}
    assert not list(run.folder.glob(".*"))


def test_a_run_killed_before_its_last_checkpoint_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, killed = train(tmp_path / "whole"), tmp_path / "killed"

    def kill() -> None:
        raise StopError

    with monkeypatch.context() as patch:
        cut_at(120, kill)(patch)
        with pytest.raises(StopError):
            train(killed, checkpoint_minutes=1e-9)
    assert sasr.Run(killed).steps == 120
    assert not sasr.Run(killed).finished
    resumed = sasr.resume(killed, progress=False)
    assert resumed.finished
    assert told(resumed) == told(whole)


def test_seeds_are_a_number_or_the_seeds_themselves(tmp_path: Path) -> None:
    assert train(tmp_path / "named", seeds=(4, 2), steps=40, eval_every=0).config.seeds == (4, 2)
    assert train(tmp_path / "counted", seeds=3, steps=40, eval_every=0).config.seeds == (0, 1, 2)


def test_a_stopped_run_goes_on_and_equals_one_that_was_not_stopped(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", steps=300, seeds=2)
    with pytest.MonkeyPatch.context() as patch:
        cut_at(130, lambda: os.kill(os.getpid(), signal.SIGINT))(patch)
        stopped = train(tmp_path / "stopped", steps=300, seeds=2)
    assert not stopped.finished
    assert stopped.steps == 130
    resumed = sasr.resume(stopped, progress=False, events=False)
    assert resumed.finished
    assert told(resumed) == told(whole)
    obs = np.random.default_rng(0).normal(size=(50, 3))
    np.testing.assert_array_equal(sasr.load(resumed).predict(obs)[0], sasr.load(whole).predict(obs)[0])


def test_what_a_killed_run_recorded_after_its_checkpoint_is_recorded_once(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", steps=300)

    def die() -> None:
        raise StopError

    with pytest.MonkeyPatch.context() as patch:
        begin, turned, save = Recorders.begin, Recorders.turned, Trainer.save
        held: list[Trainer] = []

        def begun(self: Recorders, trainer: Trainer) -> None:
            held.append(trainer)
            begin(self, trainer)

        def cut(self: Recorders, steps: int) -> None:
            turned(self, steps)
            if steps == 110:
                save(held[0])
            if steps == 230:
                die()

        patch.setattr(Recorders, "begin", begun)
        patch.setattr(Recorders, "turned", cut)
        with pytest.raises(StopError):
            train(tmp_path / "killed", steps=300)
    killed = sasr.Run(tmp_path / "killed")
    assert [event["step"] for event in killed.metrics("episode")] == [200]  # after the checkpoint at 110
    assert told(sasr.resume(killed, progress=False, events=False)) == told(whole)


def killed_at(step: int, out: Path, **changes: Any) -> Path:
    """A run's folder as a kill leaves it."""

    def die() -> None:
        raise StopError

    with pytest.MonkeyPatch.context() as patch:
        cut_at(step, die)(patch)
        with pytest.raises(StopError):
            train(out, **changes)
    return out


def test_a_run_killed_before_its_first_checkpoint_starts_over_only_when_asked(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    killed = killed_at(70, tmp_path / "killed")
    history = (killed / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"metrics of 60 steps; .*: sasr resume .*killed --start-over"):
        sasr.resume(killed, progress=False, events=False)
    assert (killed / "metrics.jsonl").read_bytes() == history
    resumed = sasr.resume(killed, progress=False, events=False, start_over=True)
    assert told(resumed) == told(whole)
    assert (killed / "metrics.1.jsonl").read_bytes().startswith(history)


def test_a_run_killed_in_its_first_step_starts_again_unasked(tmp_path: Path) -> None:
    killed = killed_at(1, tmp_path / "killed", log_every=10)
    assert sasr.resume(killed, progress=False, events=False).finished
    assert not (killed / "metrics.1.jsonl").exists()


def test_what_a_finished_run_was_killed_over_is_cleared_up(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    (run.folder / "checkpoints" / "000000.old").mkdir()
    (run.folder / ".curve.png.7.part").touch()
    (run.folder / "curve.png").unlink(missing_ok=True)
    api.clean_up(run)
    assert [path.name for path in (run.folder / "checkpoints").iterdir()] == ["000001"]
    assert {path.name for path in run.folder.iterdir()} >= {"config.json", "metrics.jsonl", "curve.png"}
    assert not list(run.folder.glob(".*"))
    assert run.finished


def test_a_finished_run_whose_checkpoints_are_gone_keeps_its_history(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    history = (run.folder / "metrics.jsonl").read_bytes()
    shutil.rmtree(run.folder / "checkpoints")
    with pytest.raises(ValueError, match="--start-over"):
        sasr.resume(run, progress=False, events=False)
    assert (run.folder / "metrics.jsonl").read_bytes() == history


def test_why_no_checkpoint_can_be_used_is_told_with_the_refusal(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    (run.folder / "checkpoints" / "000001" / "agent.safetensors").unlink()
    with pytest.raises(ValueError, match=r"000001 can't be used: agent.safetensors is missing.*--start-over"):
        sasr.resume(run, progress=False, events=False)


def test_a_run_with_a_whole_checkpoint_does_not_start_over(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    with pytest.raises(ValueError, match="has a complete checkpoint, after 120 steps"):
        sasr.resume(run, progress=False, events=False, start_over=True)


def test_sasr_given_as_an_object_is_the_one_used_and_resumes_by_its_settings(tmp_path: Path) -> None:
    shaper = SASR("paper", reward_weight=0.25)
    run = train(tmp_path / "run", shaper=shaper, steps=250, eval_every=0)
    assert shaper.host is not None
    assert (run.config.shaper, run.config.shaper_config) == ("sasr", shaper.config)
    assert json.loads((run.folder / "config.json").read_text())["config"]["shaper_config"]["reward_weight"] == 0.25


class Constant:
    """A user's own shaper: the same bonus everywhere."""

    def __init__(self) -> None:
        self.steps = torch.zeros(1)

    def bind(self, host: Host) -> None:
        self.shape_of = host.members

    def observe(self, step: Transition) -> None:
        self.steps += 1

    def release(self, slots: Tensor) -> None: ...

    def cut(self, restarted: Tensor) -> None: ...

    def shape(self, batch: Batch) -> Tensor:
        return torch.full_like(batch.reward, 0.5)

    def update(self, batch: Batch) -> Mapping[str, Tensor]:
        return {}

    def state_dict(self) -> Mapping[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.steps = state_dict["steps"]


def test_a_shaper_of_the_users_own_trains_and_is_asked_for_again(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        cut_at(60, lambda: os.kill(os.getpid(), signal.SIGTERM))(patch)
        run = train(tmp_path / "run", shaper=Constant(), eval_every=0)
    assert run.config.shaper == "custom"
    with pytest.raises(ValueError, match=r"give it: sasr.resume\(run, shaper="):
        sasr.resume(run, progress=False, events=False)
    again = Constant()
    assert sasr.resume(run, shaper=again, progress=False, events=False).finished
    assert again.steps == 119  # the last step is seen when the next begins
    assert [event["shaping/bonus_mean"] for event in run.metrics("figures")] == [0.5] * 5


def twice(sent: signal.Signals) -> None:
    for _ in range(2):
        os.kill(os.getpid(), sent)


def test_a_second_sigterm_does_not_keep_a_run_from_saving_where_it_is(tmp_path: Path) -> None:
    """A cluster sends it to a runner and to its cells, and the runner sends them its own."""
    with pytest.MonkeyPatch.context() as patch:
        cut_at(60, lambda: twice(signal.SIGTERM))(patch)
        run = train(tmp_path / "run", eval_every=0)
    assert not run.finished
    with Trainer(run.config, folder=run.folder) as trainer:
        assert trainer.resume()
        assert trainer.loop.steps == 60


def test_a_second_ctrl_c_ends_a_run_at_once(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        cut_at(60, lambda: twice(signal.SIGINT))(patch)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "run", eval_every=0)


@pytest.mark.parametrize("name", [name for name, kind in AGENTS.items() if kind.preset is None])
def test_every_agent_trains_and_acts_from_its_folder_as_it_did(name: str, tmp_path: Path) -> None:
    wanted = {"hidden": (8, 8), "burn_in": 20, "batch_size": 16, "rollout": 32, "epochs": 1, "minibatches": 2}
    kind = AGENTS[name].config
    config = kind(
        **{each: wanted[each] for each in wanted if each in {field.name for field in dataclasses.fields(kind)}}
    )
    task = "CartPole-v1" if "discrete" in name else "Pendulum-v1"
    run = sasr.train(
        task, agent=config, seeds=2, steps=80, eval_every=0, workers=0, progress=False, out=tmp_path / name
    )
    assert run.config.agent == name
    with Trainer(run.config, folder=run.folder) as trainer:
        assert trainer.resume()
        width = trainer.population.observation_space.shape[0]
        obs = torch.randn(2, 5, width, generator=torch.Generator().manual_seed(0))
        best = trainer.learner.act_best(obs)
    policy = sasr.load(run)
    for member in range(2):
        action, _ = policy.predict(obs[member].numpy(), member=member)
        np.testing.assert_array_equal(action, best[member].numpy())
        assert policy.action_space.contains(action[0])


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ({"shaper": "sassr"}, ValueError, "did you mean 'sasr'"),
        ({"agent": "sacc"}, ValueError, "did you mean 'sac'"),
        ({"agent": 3}, TypeError, "neither a name nor settings of an agent"),
        ({"shaper": 3}, TypeError, "neither a name nor a RewardShaper"),
        ({"shaper": sasr.SASR}, TypeError, r"SASR\(\)"),
        ({"preset": "papper"}, ValueError, "did you mean 'paper'"),
        ({"eval_evry": 5}, ValueError, "did you mean 'eval_every'"),
        ({"seeds": 0}, ValueError, "seeds=.* is empty"),
        ({"seeds": (1, 1)}, ValueError, "has duplicates"),
        ({"steps": 10}, ValueError, "steps=10 is less than burn_in=30"),
    ],
)
def test_a_wrong_setting_is_named_and_leaves_no_folder(
    wrong: dict[str, Any], kind: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=message):
        train(tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


def test_steps_suit_the_task_where_nobody_says() -> None:
    assert api.default_steps("AntStand") == api.default_steps("SASR/AntStandPaper-v0") == 1_000_000
    assert api.default_steps("MountainCar") < 100_000
    assert api.default_steps("Pendulum-v1") == 100_000


# ----------------------------------------------------------------- tasks that are objects


class Corridor(gym.Env[np.ndarray, np.ndarray]):
    """Eight places in a row; the reward is at the far end."""

    def __init__(self, length: float = 8.0) -> None:
        self.observation_space = gym.spaces.Box(0.0, length, (1,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.at = np.zeros(1, np.float32)
        return self.at, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.at = np.clip(self.at + action, 0.0, self.length).astype(np.float32)
        done = bool(self.at >= self.length)
        return self.at, float(done), done, False, {}


def corridor() -> gym.Env:
    return gym.wrappers.TimeLimit(Corridor(), 20)


def train_on(task: Any, out: Path, **changes: Any) -> sasr.Run:
    plain: dict[str, Any] = {"agent": TINY, "steps": 60, "eval_every": 30, "eval_episodes": 2, "workers": 0}
    return sasr.train(task, out=out, progress=False, events=False, **(plain | changes))


def test_a_function_with_a_name_is_found_again_by_it(tmp_path: Path) -> None:
    run = train_on(corridor, tmp_path / "run")
    assert run.config.task == f"{__name__}:corridor"
    plain = train_on(f"{__name__}:corridor", tmp_path / "plain")
    assert told(plain) == told(run)
    with pytest.raises(ImportError, match="allow-import"):
        sasr.resume(run.folder)
    assert sasr.resume(run.folder, allow_import=[__name__], progress=False, events=False).finished


@pytest.mark.parametrize(("kind", "workers"), [("lambda", 0), ("environment", 2), ("sparse", 0)])
def test_an_object_trains_as_the_function_does_and_is_given_again_to_go_on(
    kind: str, workers: int, tmp_path: Path
) -> None:
    def near(env: Any, observation: np.ndarray, info: dict) -> bool:
        return bool(observation[0] >= 8.0)

    sparse_env = sparse(gym.wrappers.TimeLimit(Corridor(), 20), near)
    tasks: dict[str, Any] = {"lambda": lambda: corridor(), "environment": corridor(), "sparse": sparse_env}
    task = tasks[kind]
    run = train_on(task, tmp_path / "run", seeds=2, workers=workers)
    assert told(run) == told(train_on(corridor, tmp_path / "named", seeds=2))
    assert run.config.task.endswith("()")
    with pytest.raises(ValueError, match="give it again"):
        sasr.resume(run.folder, progress=False, events=False)
    assert sasr.resume(run, progress=False, events=False).finished
    assert sasr.resume(run.folder, task=task, progress=False, events=False).finished
    result = evaluate_policy(sasr.load(run), episodes=2, workers=0, task=task)
    assert result.returns.shape == (2, 2)


def test_the_environment_itself_is_not_touched(tmp_path: Path) -> None:
    env = corridor()
    first, _ = env.reset(seed=0)
    train_on(env, tmp_path / "run")
    env.step(np.ones(1, np.float32))
    assert env.unwrapped.at == first + 1.0  # type: ignore[attr-defined]


def test_an_environment_that_cannot_be_copied_is_refused_with_the_fix(tmp_path: Path) -> None:
    env = Corridor()
    env.file = (tmp_path / "open").open("w")  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"can't be copied.*give a function"):
        train_on(env, tmp_path / "run")


def test_a_run_warns_once_where_nothing_counts_as_a_success(tmp_path: Path) -> None:
    def short() -> gym.Env:
        env = gym.wrappers.TimeLimit(Corridor(length=0.1), 20)
        return gym.wrappers.TransformReward(env, lambda reward: float(reward) - 1.0)

    run = train_on(short, tmp_path / "run")
    assert sum("counted as a success" in event["text"] for event in run.metrics("notice")) == 1
    told_nothing = train_on(corridor, tmp_path / "rewarded")
    assert not any("counted as a success" in event["text"] for event in told_nothing.metrics("notice"))
