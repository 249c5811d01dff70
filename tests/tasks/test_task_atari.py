"""The Atari rules: on the console where a script gets there, on written memory where none does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ale_py import AtariEnv
from hypothesis import given
from hypothesis import strategies as st

from sasr.tasks import make
from sasr.tasks.atari import Homes, Moment, Points, Rooms, Treasures
from sasr.tasks.screen import area_weights
from tests.tasks.rollouts import play


def hold(action: Any) -> Any:
    return lambda env, observation, step: action


def meaning(env: Any, name: str) -> int:
    return env.unwrapped.screen.unwrapped.get_action_meanings().index(name)


def moment(score: float = 0.0, lives: int = 3, **memory: int) -> Moment:
    held = np.zeros(128, np.uint8)
    for address, value in memory.items():
        held[int(address[1:])] = value
    return Moment(held, score, lives)


@pytest.mark.slow
def test_freeway_always_up_scores_21() -> None:
    env: Any = make("Freeway")
    told = play(env, 1, hold(meaning(env, "UP")))
    assert told.returns[0] == told.last_info["game_score"] == 21
    assert told.lengths[0] == 2000
    assert not told.terminated.any()


def test_frogger_always_up_hops_once() -> None:
    env: Any = make("Frogger")
    told = play(env, 1, hold(meaning(env, "UP")))
    assert told.last_info["game_score"] == 1
    assert told.returns[0] == 0


def test_frogger_score_mode_pays_the_score() -> None:
    env: Any = make("Frogger", reward_mode="score")
    told = play(env, 1)
    assert told.returns[0] == told.last_info["game_score"] > 0


def test_pitfall_starts_with_all_treasures() -> None:
    env: Any = make("Pitfall")
    env.reset(seed=0)
    memory = env.unwrapped.ale.getRAM()
    assert (memory[113], memory[1]) == (31, 0xC4)


def test_montezuma_starts_in_room_one() -> None:
    env: Any = make("MontezumaRevenge")
    env.reset(seed=0)
    assert env.unwrapped.ale.getRAM()[3] == 1


def test_pitfall_ends_with_the_first_mishap() -> None:
    told = play(make("Pitfall"), 3)
    assert told.terminated.all()
    assert (told.returns == 0).all()


def test_frames_are_grey_and_can_be_scaled() -> None:
    frame, info = make("Freeway").reset(seed=0)
    scaled, _ = make("Freeway", scale=True).reset(seed=0)
    assert (frame.shape, frame.dtype, info["game_score"]) == ((84, 84), np.uint8, 0.0)
    assert scaled.dtype == np.float32
    assert scaled == pytest.approx(frame / 255, abs=1e-6)


def test_a_step_is_four_frames_with_and_without_pooling() -> None:
    for pooling in (True, False):
        env: Any = make("Freeway", pooling=pooling)
        env.reset(seed=0)
        before = env.unwrapped.ale.getEpisodeFrameNumber()
        env.step(0)
        assert env.unwrapped.ale.getEpisodeFrameNumber() - before == 4


def test_treasure_rule() -> None:
    rule = Treasures()
    rule.reset(moment(_113=31))
    assert rule.step(moment(score=-4, _113=31)) == (0.0, False)  # a log
    assert rule.step(moment(score=2000, _113=30)) == (1.0, False)
    assert rule.step(moment(score=-100, _113=30)) == (0.0, True)  # a hole
    assert rule.step(moment(lives=2, _113=30)) == (0.0, True)
    rule.reset(moment(_113=0))
    assert rule.step(moment(score=5000, _113=255)) == (1.0, False)  # the last one wraps the counter
    rule.reset(moment(_113=30))
    assert rule.step(moment(_113=31))[0] == 0.0


def test_home_rule() -> None:
    rule = Homes()
    rule.reset(moment(_99=0b100000))
    assert rule.step(moment(score=40, _99=0b100100)) == (1.0, False)  # bit 5 is no home
    assert rule.step(moment(_99=0b000100)) == (0.0, False)
    assert rule.step(moment(score=40, _99=0b011100)) == (2.0, False)
    assert rule.step(moment(score=40, _99=0b011111)) == (2.0, True)
    rule.reset(moment(_99=0b01111))
    assert rule.step(moment(score=40, _99=0)) == (1.0, True)  # filled and cleared in one step
    rule.reset(moment(_99=0b01111))
    assert rule.step(moment(score=0, _99=0)) == (0.0, False)


def test_room_rule() -> None:
    rule = Rooms()
    rule.reset(moment(_57=0, _3=1))
    assert [rule.step(moment(_57=level, _3=room))[0] for level, room in ((0, 1), (0, 2), (0, 1), (0, 2), (1, 1))] == [
        0.0,
        1.0,
        0.0,
        0.0,
        1.0,
    ]
    rule.reset(moment(_57=0, _3=1))
    assert rule.step(moment(_57=0, _3=2)) == (1.0, False)  # a new episode discovers again


def test_point_rule() -> None:
    rule = Points()
    rule.reset(moment())
    assert [rule.step(moment(score=score))[0] for score in (0, 20, 500, -1)] == [0.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("pooling", [True, False])
def test_frames_are_those_of_the_usual_preprocessing(pooling: bool) -> None:
    """The same console under Gymnasium's wrapper, whose resize is OpenCV's."""
    pytest.importorskip("cv2")
    from gymnasium.wrappers import AtariPreprocessing

    skip = 4 if pooling else 1
    console = AtariEnv(game="freeway", frameskip=4 // skip, repeat_action_probability=0.25)
    theirs, ours = AtariPreprocessing(console, frame_skip=skip), make("Freeway", pooling=pooling)
    rng = np.random.default_rng(0)
    actions = [None, *rng.integers(3, size=60)]
    for action in actions:
        if action is None:
            expected, frame = theirs.reset(seed=3)[0], ours.reset(seed=3)[0]
        else:
            expected, frame = theirs.step(action)[0], ours.step(action)[0]
        assert np.abs(expected.astype(int) - frame.astype(int)).max() <= 1  # where a half is rounded
    assert (expected == frame).mean() > 0.99


@given(source=st.integers(1, 300), target=st.integers(1, 84))
def test_a_resize_by_area_keeps_the_brightness(source: int, target: int) -> None:
    weights = area_weights(source, target)
    np.testing.assert_allclose(weights.sum(1), 1.0, rtol=1e-5)  # a plain line stays as bright
    np.testing.assert_allclose(weights.sum(0), target / source, rtol=1e-4)  # no pixel counts more than another


@pytest.mark.parametrize("game", ["Freeway", "Frogger"])
def test_the_place_is_the_agents_own(game: str) -> None:
    """It stays while nothing is pressed, whatever else moves, and goes up with a walk up."""
    env: Any = make(game)
    _, told = env.reset(seed=0)
    first = told["place"]
    up = meaning(env, "UP")
    assert {env.step(0)[-1]["place"] for _ in range(60)} == {first}
    reached = {env.step(up if t % 2 else 0)[-1]["place"] for t in range(150)}
    assert first == min(reached)
    assert len(reached) > 1


def test_a_missing_game_gives_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(ImportError, match=r'the game freeway is missing.*pip install --force-reinstall "ale-py>=0.10"'):
        make("Freeway")
    (tmp_path / "freeway.bin").write_bytes(b"something else")
    with pytest.raises(ImportError, match=r"hash of freeway.bin.*pip install"):
        make("Freeway")


def test_an_unknown_reward_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="reward_mode='points' must be 'event' or 'score'"):
        make("Freeway", reward_mode="points")
