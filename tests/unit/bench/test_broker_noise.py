"""Model of a noisy broker, in which equal arms differ from block to block.

A record's latency is lognormal around a drifting level. Occasionally the broker pauses, which delays all records due
during the pause. Drift and pauses are calibrated to the first runs (12 blocks, 1.8 s measured at 250 records/s): the
control's intervals, 0.885 to 1.02 at p50 and 0.55 to 1.01 at p99, correspond to standard deviations of a block's
log-ratio of 0.11 and 0.48.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
RATE_PER_S, STEP_S = 250, 0.1
LEVEL_SD, DRIFT_S = 0.13, 2.0
PAUSES_PER_S, PAUSE_MS = 0.6, 11.0
MEDIAN_MS, BODY_SD = 3.0, 0.35


def latencies(random: np.random.Generator, seconds: float) -> Floats:
    """Return latencies in ms of records sent at RATE_PER_S for this many seconds."""
    count = round(seconds * RATE_PER_S)
    steps = math.ceil(seconds / STEP_S) + 1
    memory = math.exp(-STEP_S / DRIFT_S)
    level = np.empty(steps)
    current = random.normal(0, LEVEL_SD)
    for step in range(steps):
        level[step] = current = memory * current + random.normal(0, LEVEL_SD * math.sqrt(1 - memory**2))
    due_s = np.arange(count) / RATE_PER_S
    latency_ms = MEDIAN_MS * np.exp(level[(due_s / STEP_S).astype(int)] + random.normal(0, BODY_SD, count))
    for _ in range(random.poisson(PAUSES_PER_S * seconds)):
        begin_s, length_s = random.uniform(0, seconds), random.exponential(PAUSE_MS / 1000)
        delayed = (due_s >= begin_s) & (due_s < begin_s + length_s)
        latency_ms[delayed] += (begin_s + length_s - due_s[delayed]) * 1000
    return np.asarray(latency_ms)


def block_ratios(random: np.random.Generator, blocks: int, measured_s: float, pieces: int = 1) -> Iterator[Floats]:
    """Yield the log-ratios of two equal arms at p50 and p99, block by block.

    Args:
        random: random generator.
        blocks: number of blocks.
        measured_s: measured seconds of an arm in a block.
        pieces: pieces per arm and block; the arms alternate in random order.
    """
    for _ in range(blocks):
        block = latencies(random, 2 * measured_s).reshape(pieces, 2, -1)
        order = np.argsort(random.random((pieces, 2)), axis=1)
        own = np.take_along_axis(block, order[:, :, None], axis=1)
        arm_quantiles = np.quantile(own.transpose(1, 0, 2).reshape(2, -1), [0.5, 0.99], axis=1)
        yield np.log(arm_quantiles[:, 0] / arm_quantiles[:, 1])


def spread(blocks: int, measured_s: float, pieces: int = 1) -> Floats:
    """Return the standard deviation of a block's log-ratio at p50 and at p99."""
    return np.asarray(np.std(list(block_ratios(np.random.default_rng(4), blocks, measured_s, pieces)), axis=0))


def test_the_model_has_the_spread_of_the_first_runs() -> None:
    p50, p99 = spread(300, 1.8)
    assert 0.09 <= p50 <= 0.13
    assert 0.40 <= p99 <= 0.56


def test_longer_blocks_reduce_p99_noise_and_alternation_reduces_p50_noise() -> None:
    short, long, alternating = spread(150, 2.0), spread(150, 16.0), spread(150, 16.0, pieces=40)
    # Two seconds contain few pauses, so their p99 varies widely.
    assert long[1] < 0.6 * short[1]
    assert alternating[0] < 0.6 * long[0]
