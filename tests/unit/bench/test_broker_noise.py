"""Model of a noisy broker, whose equal arms differ from block to block, under the benchmark's load.

A record takes a lognormal time on a level that wanders (minutes to tenths of a second), and the broker pauses now and
then, which holds up all records that are due meanwhile. Its two strengths are chosen such that slots as in the first
runs (12 blocks, 1.8 s measured at 250 records/s) spread as they did there: the widths of the control's intervals, 0.885
to 1.02 at p50 and 0.55 to 1.01 at p99, are those of log-ratios with standard deviations of 0.11 and 0.48.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
RATE, STEP_S = 250, 0.1
LEVEL, WANDER_S = 0.13, 2.0
PAUSES_PER_S, PAUSE_MS = 0.6, 11.0
MEDIAN_MS, BODY = 3.0, 0.35


def latencies(random: np.random.Generator, seconds: float) -> Floats:
    """Latencies in ms of the records of a stretch of time, one every 1/RATE seconds."""
    count = round(seconds * RATE)
    steps = math.ceil(seconds / STEP_S) + 1
    memory = math.exp(-STEP_S / WANDER_S)
    level = np.empty(steps)
    now = random.normal(0, LEVEL)
    for at in range(steps):
        level[at] = now = memory * now + random.normal(0, LEVEL * math.sqrt(1 - memory**2))
    due_s = np.arange(count) / RATE
    taken = MEDIAN_MS * np.exp(level[(due_s / STEP_S).astype(int)] + random.normal(0, BODY, count))
    for _ in range(random.poisson(PAUSES_PER_S * seconds)):
        begin_s, length_s = random.uniform(0, seconds), random.exponential(PAUSE_MS / 1000)
        held = (due_s >= begin_s) & (due_s < begin_s + length_s)
        taken[held] += (begin_s + length_s - due_s[held]) * 1000
    return np.asarray(taken)


def block_ratios(random: np.random.Generator, blocks: int, measured_s: float, pieces: int = 1) -> Iterator[Floats]:
    """Log-ratios of two equal arms at p50 and p99, block by block.

    Args:
        random: source of chance.
        blocks: how many.
        measured_s: what is measured of an arm in a block.
        pieces: into which that is cut; the arms take turns.
    """
    for _ in range(blocks):
        whole = latencies(random, 2 * measured_s).reshape(pieces, 2, -1)
        turns = np.argsort(random.random((pieces, 2)), axis=1)
        own = np.take_along_axis(whole, turns[:, :, None], axis=1)
        at = np.quantile(own.transpose(1, 0, 2).reshape(2, -1), [0.5, 0.99], axis=1)
        yield np.log(at[:, 0] / at[:, 1])


def spread(blocks: int, measured_s: float, pieces: int = 1) -> Floats:
    """Standard deviation of a block's log-ratio at p50 and at p99."""
    return np.asarray(np.std(list(block_ratios(np.random.default_rng(4), blocks, measured_s, pieces)), axis=0))


def test_the_model_spreads_as_the_first_runs_did() -> None:
    p50, p99 = spread(300, 1.8)
    assert 0.09 <= p50 <= 0.13
    assert 0.40 <= p99 <= 0.56


def test_longer_blocks_calm_the_tail_and_taking_turns_calms_the_median() -> None:
    one, longer, turns = spread(150, 2.0), spread(150, 16.0), spread(150, 16.0, pieces=40)
    # Pauses are few in two seconds, so the 99th percentile there is a matter of luck.
    assert longer[1] < 0.6 * one[1]
    assert turns[0] < 0.6 * longer[0]
