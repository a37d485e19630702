"""Marks by folder, the order and the groups of files for parallel runs, and profiles of Hypothesis.

Property tests draw the same examples in each run, so that a failure is due to a change.
``pytest tests/property/checkers/test_random_histories.py --hypothesis-profile=hunt`` draws more, others each time.
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling, Scheduling

# no deadline: it would measure the machine
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("hunt", derandomize=False, print_blob=True, deadline=None)
settings.load_profile("same")

TESTS = Path(__file__).parent
# Options of brokers: in so short a run, the second compiler and a parallel collector cost more than they save.
os.environ.setdefault("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")

# Files that take longest, by the time that they take; they start first, so that no worker ends with one of them alone.
LONGEST = (
    "live/workload/test_clients_and_killed_broker.py",
    "live/kafka/test_required_racks.py",
    "live/core/test_spark.py",
    "live/kafka/test_rack_destroyed.py",
    "live/outage/test_lower_and_restore.py",
    "live/patchset/test_small_build.py",
    "live/lab/test_lab.py",
    "live/bench/test_pipeline.py",
    "live/placement/test_preflight_command.py",
    "live/documents/test_readme_lab.py",
    "live/lab/test_faults_on_kafka.py",
    "live/patchset/test_overlay_on_stock.py",
    "live/placement/test_check_command.py",
    "live/verify/test_mutants_in_jvm.py",
    "live/jvm/test_clients.py",
    "live/verify/test_controller_records.py",
    "live/adoption/test_adopt_command.py",
)
# Files with Spark sessions in their own process run on one worker, whose JVM they share.
SPARK = frozenset(
    f"tests/live/bench/test_{name}.py" for name in ("cells_on_spark", "damaged_observations", "isr_shrink", "pipeline")
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by its folder (``unit``, ``property`` or ``live``) and put those of the longest files first."""
    order = {name: number for number, name in enumerate(LONGEST)}
    for item in items:
        item.add_marker(item.path.relative_to(TESTS).parts[0])
    items.sort(key=lambda item: order.get(item.path.relative_to(TESTS).as_posix(), len(order)))


class FileGroupScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """As ``--dist loadfile``, but the files in ``SPARK`` count as one."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "spark" if file in SPARK else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling | None:
    """Group files with ``--dist loadfile``; other modes are left to xdist."""
    return FileGroupScheduling(config, log) if config.getoption("dist") == "loadfile" else None
