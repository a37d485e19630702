"""Exact quantiles of any number of observations in two Spark passes with small results.

The first pass counts observations in bins of equal ratio, which shows the bin of each wanted rank. The second one
counts equal values in those bins alone. So a quantile equals that of all sorted observations, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from pyhooks.core.statistics import BINS_PER_E

Key = tuple[Any, ...]
Ints = npt.NDArray[np.int64]
NS_PER_US = 1000.0


def bin_of(value: str) -> Column:
    """Return the bin of a column of nanoseconds; ``pyhooks.core.statistics.bin_value`` gives its centre in µs."""
    # All values below a microsecond share bin 0.
    return F.floor(F.log(F.greatest(F.col(value) / NS_PER_US, F.lit(1.0))) * BINS_PER_E).cast("int")


@dataclass(frozen=True)
class BinCounts:
    """Number of observations in each bin."""

    bins: Ints  # bins in ascending order, int64
    counts: Ints  # one count per bin, int64

    @property
    def total(self) -> int:
        """Number of all observations."""
        return int(self.counts.sum())

    def place(self, rank: int) -> tuple[int, int]:
        """Return the bin of the observation with this rank (from 0), and its rank within the bin."""
        sums = self.counts.cumsum()
        at = int(np.searchsorted(sums, rank, side="right"))
        return int(self.bins[at]), rank - (int(sums[at - 1]) if at else 0)


def ranks(quantile: float, total: int) -> tuple[int, int, float]:
    """Return the two ranks around a quantile, and its position between them, as numpy's ``linear`` method."""
    position = quantile * (total - 1)
    low = int(position)
    return low, min(low + 1, total - 1), position - low


def count_bins(frame: DataFrame, value: str, keys: Sequence[str]) -> dict[Key, BinCounts]:
    """Count the whole nanoseconds in ``value`` of each group of ``keys`` by bin (first pass)."""
    table = frame.groupBy(*keys, bin_of(value).alias("bin")).agg(F.count("*").alias("n")).toArrow()
    return {key: BinCounts(bins, counts) for key, bins, counts in _grouped(table, keys, "bin", "n")}


def align_counts(groups: Sequence[BinCounts]) -> tuple[Ints, Ints]:
    """Return the bins that occur in any of the groups, and the counts, shape (groups, bins)."""
    bins = np.unique(np.concatenate([group.bins for group in groups]))
    counts = np.zeros((len(groups), bins.size), dtype=np.int64)
    for row, group in zip(counts, groups, strict=True):
        row[np.searchsorted(bins, group.bins)] = group.counts
    return bins, counts


def pool_counts(groups: Sequence[BinCounts]) -> BinCounts:
    """Return the counts of several groups together."""
    bins, counts = align_counts(groups)
    return BinCounts(bins, counts.sum(axis=0))


@dataclass(frozen=True)
class QuantileQuery:
    """Quantile to compute."""

    groups: tuple[Key, ...]  # groups whose observations are pooled
    counts: BinCounts  # pooled counts of these groups
    quantile: float  # quantile as a fraction; 1 is the maximum


def exact_quantiles(frame: DataFrame, value: str, keys: Sequence[str], queries: Sequence[QuantileQuery]) -> list[float]:
    """Return quantiles of the same observations as in the first pass, in nanoseconds (second pass)."""
    if not queries:
        return []
    values = _values_in(frame, value, keys, _bins(queries))
    quantiles = []
    for query in queries:
        low, high, share = ranks(query.quantile, query.counts.total)
        lower, upper = (_at_rank(values, query, rank) for rank in (low, high))
        quantiles.append(lower + (upper - lower) * share)
    return quantiles


def _bins(queries: Sequence[QuantileQuery]) -> list[Key]:
    """Return the bins to read, each as its group's key and the bin."""
    bins: set[Key] = set()
    for query in queries:
        for rank in ranks(query.quantile, query.counts.total)[:2]:
            bin_, _ = query.counts.place(rank)
            bins |= {(*group, bin_) for group in query.groups}
    return sorted(bins)


def _values_in(frame: DataFrame, value: str, keys: Sequence[str], bins: list[Key]) -> dict[Key, tuple[Ints, Ints]]:
    """Return the values, and how often each occurs, for each of the bins."""
    names = [*keys, "bin"]
    types = {field.name: field.dataType.simpleString() for field in frame.select(*keys).schema} | {"bin": "int"}
    schema = ", ".join(f"{name} {types[name]}" for name in names)
    table = (
        frame.select(*keys, F.col(value).alias("value"), bin_of(value).alias("bin"))
        .join(F.broadcast(frame.sparkSession.createDataFrame(bins, schema)), names, "left_semi")
        .groupBy(*names, "value")
        .agg(F.count("*").alias("n"))
        .toArrow()
    )
    return {key: (values, counts) for key, values, counts in _grouped(table, names, "value", "n")}


def _at_rank(values_in: dict[Key, tuple[Ints, Ints]], query: QuantileQuery, rank: int) -> float:
    bin_, inside = query.counts.place(rank)
    parts = [values_in[*group, bin_] for group in query.groups if (*group, bin_) in values_in]
    values = np.concatenate([part[0] for part in parts])
    counts = np.concatenate([part[1] for part in parts])
    order = np.argsort(values, kind="stable")
    return float(values[order][np.searchsorted(counts[order].cumsum(), inside, side="right")])


def _grouped(table: Any, keys: Sequence[str], order: str, number: str) -> Iterator[tuple[Key, Ints, Ints]]:
    """Yield for each group of an Arrow table its key and two columns, sorted by the first of them."""
    grouped = table.group_by(list(keys)).aggregate([(order, "list"), (number, "list")])
    values, counts = (grouped[f"{name}_list"].combine_chunks() for name in (order, number))
    ordered, numbers = (lists.values.to_numpy().astype(np.int64) for lists in (values, counts))
    every_key = zip(*(grouped[key].to_pylist() for key in keys), strict=True)
    for key, (start, end) in zip(every_key, pairwise(values.offsets.to_numpy()), strict=True):
        rows = start + np.argsort(ordered[start:end])
        yield key, ordered[rows], numbers[rows]
