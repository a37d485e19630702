"""The virtual environment of the system tests has every package that they import, also within functions."""

from __future__ import annotations

import re
import sys
from importlib.metadata import packages_distributions

import grimp

from pyhooks.core import paths


def imported_packages() -> set[str]:
    """Return the top-level packages from elsewhere that the system tests import, directly or indirectly."""
    graph = grimp.build_graph("ducktape_tests", "pyhooks", "bench", include_external_packages=True, cache_dir=None)
    tests = [name for name in graph.modules if re.fullmatch(r"ducktape_tests\.\w+_test", name)]
    assert tests
    modules = set().union(*(graph.find_upstream_modules(name) for name in tests))
    return {name.split(".")[0] for name in modules} - {"ducktape_tests", "pyhooks", "bench"} - sys.stdlib_module_names


def test_the_environment_has_every_imported_package() -> None:
    lock = (paths.REPO / "requirements" / "ducktape.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    distributions = packages_distributions()
    imported = imported_packages()
    # an import within a function
    assert "scipy" in imported
    names = {name: {each.lower().replace("_", "-") for each in distributions.get(name, [name])} for name in imported}
    assert {name for name, alternatives in names.items() if not alternatives & locked} == set()
