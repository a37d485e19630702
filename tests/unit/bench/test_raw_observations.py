"""Damaged raw observations: a one-line error that names the file, before Spark reads any."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis import latency_analysis
from observation_rows import COUNT, rows
from pyhooks.core.errors import RackgateError


def refused(raw: Path) -> str:
    with pytest.raises(RackgateError) as caught:
        latency_analysis.read_raw(None, raw)
    assert caught.value.exit_status == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "part.parquet"
    rows().to_parquet(path)
    return path.read_bytes()


@given(data=st.data())
def test_a_file_that_is_cut_short_is_named(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, data: st.DataObject
) -> None:
    raw = tmp_path_factory.mktemp("raw")
    (raw / "000.1").mkdir()
    (raw / "000.1" / "good.parquet").write_bytes(whole)
    bad = raw / "000.1" / "bad.parquet"
    bad.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert refused(raw).startswith(f"{bad}: not Parquet: ")


def without(name: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.drop(columns=name)


def as_type(name: str, kind: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.astype({name: kind})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        *((without(name), f"column {name} is missing") for name in sorted(latency_analysis.REQUIRED)),
        (as_type("done_ns", "float64"), "column done_ns is of type double"),
        (as_type("sent_ns", "str"), "column sent_ns is of type (large_)?string"),
        (as_type("arm", "category"), "column arm is of type dictionary"),
        (lambda frame: frame.assign(block="1"), "column block is of type (large_)?string"),
        (lambda frame: frame.assign(measured=1), "column measured is of type int64"),
        (lambda frame: frame.assign(outcome=[[1]] * COUNT), "column outcome is of type list"),
    ],
)
def test_missing_columns_and_wrong_types_are_named(
    tmp_path: Path, change: Callable[[pd.DataFrame], pd.DataFrame], error: str
) -> None:
    rows().to_parquet(tmp_path / "a.parquet")
    change(rows()).to_parquet(tmp_path / "b.parquet")
    assert re.search(rf"b\.parquet: not observations: {error}", refused(tmp_path))


@pytest.mark.parametrize("kind", ["none", "empty", "folder", "link"])
def test_a_missing_file_is_named(tmp_path: Path, kind: str) -> None:
    raw = tmp_path / "raw"
    if kind != "none":
        raw.mkdir()
    if kind == "folder":
        (raw / "a.parquet").mkdir()
    elif kind == "link":
        (raw / "a.parquet").symlink_to(tmp_path / "nowhere")
    assert refused(raw).startswith(f"{raw}")


def test_columns_that_are_not_needed_may_be_missing(tmp_path: Path) -> None:
    rows().assign(block=np.int32(1), error=None).to_parquet(tmp_path / "a.parquet")
    latency_analysis._check_files(tmp_path)
