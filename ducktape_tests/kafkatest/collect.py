"""List the cases of a checkout's kafkatest as JSON. Usage: ``python -m ducktape_tests.kafkatest.collect CHECKOUT``.

It runs in the virtual environment of ducktape, with the checkout's ``tests`` on the module path.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from ducktape.cluster.json import JsonCluster
from ducktape.tests.loader import TestLoader
from ducktape.tests.session import SessionContext


def main() -> None:
    """Print one JSON object for each case."""
    tests = Path(sys.argv[1]).resolve() / "tests" / "kafkatest"
    logger = logging.getLogger(__name__)
    logger.addHandler(logging.NullHandler())
    context = SessionContext(session_id="collect", results_dir=".")
    loader = TestLoader(context, logger, cluster=JsonCluster({"nodes": []}))
    cases = [
        {
            "file": Path(test.file).relative_to(tests).as_posix(),
            "class_name": test.cls_name,
            "function": test.function_name,
            "args": test.injected_args or {},
            "nodes": test.expected_num_nodes,
            "ignored": bool(test.ignore),
        }
        for test in loader.load([f"{tests}/"])
    ]
    sys.stdout.write(json.dumps(cases))


if __name__ == "__main__":
    main()
