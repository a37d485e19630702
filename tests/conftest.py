"""Marks by folder, and profiles of Hypothesis.

Property tests draw the same examples in each run, so that a failure is due to a change.
``pytest tests/property/checkers/test_random_histories.py --hypothesis-profile=hunt`` draws more, others each time.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import settings

# no deadline: it would measure the machine
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("hunt", derandomize=False, print_blob=True, deadline=None)
settings.load_profile("same")

TESTS = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark each test by its folder: ``unit``, ``property`` or ``live``."""
    for item in items:
        item.add_marker(item.path.relative_to(TESTS).parts[0])
