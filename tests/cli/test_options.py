from __future__ import annotations

import dataclasses

import pytest

from sasr import LinearSchedule
from sasr.agents import SacConfig
from sasr.agents.registry import AGENTS
from sasr.cli.options import meanings, split_settings
from sasr.settings import setting_text, with_settings
from sasr.shaping.presets import SasrConfig, preset_config
from sasr.shaping.registry import SHAPERS
from sasr.training import TrainConfig
from tests.cli.commands import run

CONFIGS = [*(kind.config for kind in AGENTS.values()), *(kind.config for kind in SHAPERS.values())]


@pytest.mark.parametrize("kind", [TrainConfig, *CONFIGS], ids=lambda kind: kind.__name__)
def test_every_setting_has_a_meaning(kind: type) -> None:
    meaning = meanings(kind)
    assert [field.name for field in dataclasses.fields(kind) if not meaning.get(field.name)] == []


@pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: kind.__name__)
def test_every_setting_can_be_set_to_what_is_shown_of_it(kind: type) -> None:
    config = kind()
    texts = {field.name: setting_text(getattr(config, field.name)) for field in dataclasses.fields(config)}
    assert with_settings("agent", config, texts) == config


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("agent.critic_lr=1e-3", 1e-3),
        ("agent.hidden=64,64", (64, 64)),
        ("agent.hidden=(32,)", (32,)),
        ("agent.burn-in=100", 100),
        ("agent.target_entropy=none", None),
        ("agent.target_entropy=-2", -2.0),
    ],
)
def test_a_text_becomes_a_value_of_the_settings_type(text: str, value: object) -> None:
    name = text.split("=")[0].removeprefix("agent.").replace("-", "_")
    found = getattr(with_settings("agent", SacConfig(), split_settings([text])["agent"]), name)
    assert found == value
    assert type(found) is type(value)


def test_flags_words_and_schedules_of_the_shaper() -> None:
    texts = split_settings(["shaper.sample=ratio", "shaper.kernel=laplacian", "shaper.bandwidth=0.5,0.1,1000"])[
        "shaper"
    ]
    found = with_settings("shaper", preset_config("paper"), texts)
    assert found == SasrConfig(sample="ratio", kernel="laplacian", bandwidth=LinearSchedule(0.5, 0.1, 1000))
    assert with_settings("shaper", found, {"bandwidth": "median"}).bandwidth == "median"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agent.critic_rl=1", "did you mean 'critic_lr'"),
        ("agnt.critic_lr=1", "did you mean 'agent'"),
        ("critic_lr=1", r"write agent.NAME=VALUE"),
        ("agent.critic_lr", r"write agent.NAME=VALUE"),
        ("agent.burn_in=soon", "agent.burn_in=soon is not a whole number"),
        ("agent.burn_in=1.5", "agent.burn_in=1.5 is not a whole number"),
        ("agent.critic_lr=nan", "agent.critic_lr=nan is not a number"),
        ("agent.hidden=big", "is not a list such as 64,64"),
        ("agent.tau=2", r"tau=2.0 must be in \(0, 1\]"),
    ],
)
def test_a_wrong_setting_is_named_with_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_settings("agent", SacConfig(), split_settings([text])["agent"])


def test_the_command_lists_them_with_the_presets_values(capsys: pytest.CaptureFixture[str]) -> None:
    code, output = run(capsys, "settings", "sasr", "--preset", "authors")
    assert code == 0
    assert "shaper.reward_weight 0.3 Weight λ of the shaped reward." in output
    assert "agent.critic_lr" not in output
    assert "agent.critic_lr" in run(capsys, "settings")[1]
    code, output = run(capsys, "settings", "sasrr")
    assert code == 2
    assert "did you mean 'sasr'" in output


def test_an_option_of_the_mechanism_is_a_setting_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    texts = split_settings(["shaper.sample=ratio", "shaper.weight_rule=failures", "shaper.background=3"])["shaper"]
    assert with_settings("shaper", preset_config("paper"), texts) == preset_config(
        "paper", sample="ratio", weight_rule="failures", background=3.0
    )
    with pytest.raises(ValueError, match="is not one of beta, ratio"):
        with_settings("shaper", preset_config(), {"sample": "median"})
    assert "shaper.sample beta A draw from" in run(capsys, "settings", "sasr")[1]


def test_a_setting_of_another_shaper_is_sent_there() -> None:
    with pytest.raises(ValueError, match="'bits' is not one of 'rnd': it belongs to 'explo'"):
        with_settings("shaper", SHAPERS["rnd"].config(), {"bits": "16"})
