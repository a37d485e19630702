"""Damaged raw observations are a one-line error that names the file, before Spark reads them."""

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


def read_error(raw: Path) -> str:
    with pytest.raises(RackgateError) as caught:
        latency_analysis.read_raw(None, raw)
    assert caught.value.exit_status == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def valid_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("valid") / "part.parquet"
    rows().to_parquet(path)
    return path.read_bytes()


@given(data=st.data())
def test_a_truncated_file_is_named(
    tmp_path_factory: pytest.TempPathFactory, valid_file: bytes, data: st.DataObject
) -> None:
    raw = tmp_path_factory.mktemp("raw")
    (raw / "000.1").mkdir()
    (raw / "000.1" / "good.parquet").write_bytes(valid_file)
    truncated = raw / "000.1" / "truncated.parquet"
    truncated.write_bytes(valid_file[: data.draw(st.integers(0, len(valid_file) - 1))])
    assert read_error(raw).startswith(f"{truncated}: not Parquet: ")


def drop_column(name: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.drop(columns=name)


def cast_column(name: str, kind: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.astype({name: kind})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        *((drop_column(name), f"column {name} is missing") for name in sorted(latency_analysis.REQUIRED)),
        (cast_column("done_ns", "float64"), "column done_ns is of type double"),
        (cast_column("sent_ns", "str"), "column sent_ns is of type (large_)?string"),
        (cast_column("arm", "category"), "column arm is of type dictionary"),
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
    assert re.search(rf"b\.parquet: not observations: {error}", read_error(tmp_path))


@pytest.mark.parametrize("kind", ["none", "empty", "folder", "link"])
def test_a_folder_without_readable_files_is_named(tmp_path: Path, kind: str) -> None:
    raw = tmp_path / "raw"
    if kind != "none":
        raw.mkdir()
    if kind == "folder":
        (raw / "a.parquet").mkdir()
    elif kind == "link":
        (raw / "a.parquet").symlink_to(tmp_path / "nowhere")
    assert read_error(raw).startswith(f"{raw}")


def test_optional_columns_may_be_missing(tmp_path: Path) -> None:
    rows().assign(block=np.int32(1), error=None).to_parquet(tmp_path / "a.parquet")
    latency_analysis._check_files(tmp_path)
