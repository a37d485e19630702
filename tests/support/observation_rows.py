"""Generated raw observations with the columns that the analysis reads first."""

from __future__ import annotations

import numpy as np
import pandas as pd

COUNT = 200
TIMES = ("intended_ns", "sent_ns", "done_ns")


def rows() -> pd.DataFrame:
    times = np.arange(COUNT, dtype=np.int64)
    return pd.DataFrame({"arm": ["A"] * COUNT, "outcome": ["acked"] * COUNT} | dict.fromkeys(TIMES, times))
