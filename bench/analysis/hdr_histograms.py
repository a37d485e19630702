"""HdrHistograms of latencies: the compressed V2 encoding in base64, which every HdrHistogram library reads."""

from __future__ import annotations

import numpy as np
from hdrh.histogram import HdrHistogram

from bench.analysis.quantiles import BinCounts
from pyhooks.core import statistics

# Whole microseconds up to an hour, with three significant digits.
LOWEST_US, HIGHEST_US, DIGITS = 1, 3_600_000_000, 3


def encode(counts: BinCounts) -> str:
    """Return the HdrHistogram of latencies in microseconds.

    Raises:
        ValueError: a latency is above ``HIGHEST_US``.
    """
    histogram = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    for value_us, count in zip(statistics.bin_value(counts.bins).tolist(), counts.counts.tolist(), strict=True):
        if not histogram.record_value(int(value_us), count):
            raise ValueError(f"a latency of {value_us:.0f} µs is above {HIGHEST_US} µs")
    return str(histogram.encode().decode())


def decode(text: str) -> BinCounts:
    """Return the latencies of an HdrHistogram of ``encode`` in bins of 0.1 %.

    From 1 ms on, these are the bins that were encoded. Below, whole microseconds are wider than bins.
    """
    histogram = HdrHistogram.decode(text)
    counts = np.ctypeslib.as_array(histogram.counts).astype(np.int64)
    (used,) = np.nonzero(counts)
    lowest = [histogram.get_value_from_index(int(index)) for index in used]
    # the values of a bucket end before the next whole microsecond
    middles_us = np.array([(low + histogram.get_highest_equivalent_value(low) + 1) / 2 for low in lowest])
    bins = np.floor(np.log(np.maximum(middles_us, 1.0)) * statistics.BINS_PER_E).astype(np.int64)
    distinct, at = np.unique(bins, return_inverse=True)
    return BinCounts(distinct, np.bincount(at, weights=counts[used]).astype(np.int64))
