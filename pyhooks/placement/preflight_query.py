"""Queries of ``rackgate preflight`` beyond those of ``rackgate check``: controllers, and the JMX ports of brokers.

Controllers are asked like brokers, each over a connection of its own; they report the features that they support and
what their own properties contain. The JMX ports report the exact version of Kafka and the Produce versions in use.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jpype

from pyhooks.core.errors import RackgateError
from pyhooks.core.exit_status import JAVA_THREAD
from pyhooks.jvm.admin import GIVEN_UP, TIMEOUT, Admin
from pyhooks.jvm.client import start_jvm
from pyhooks.jvm.java_exception import JavaError
from pyhooks.placement.cluster_query import query_each_broker
from pyhooks.placement.enforcement import Enforcement
from pyhooks.placement.preflight_judgement import JmxReport

Report = TypeVar("Report")
_APP_INFO = "kafka.server:type=app-info,*"
_PRODUCE_REQUESTS = "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Produce,*"


def query_controllers(bootstrap: str, config: Mapping[str, str], *, timeout_s: float) -> Enforcement:
    """Query all registered controllers for versions, features and their own settings.

    ``timeout_s`` is the timeout of each of the two steps.

    Raises:
        RackgateError: no controller reports who the controllers are. A single one that does not respond is no error.
    """
    try:
        with Admin.responsive(bootstrap, timeout_s=timeout_s, config=config, to_controllers=True) as admin:
            admin.deadline = time.monotonic() + timeout_s
            nodes = admin.controllers()
    except JavaError as error:
        timed_out = error.java_class in {TIMEOUT, GIVEN_UP}
        reason = f"no response within {timeout_s:.0f} s" if timed_out else error.text or error.java_class
        raise RackgateError(f"controllers {bootstrap}: {reason}; see --bootstrap-controller") from error
    addresses = {node.broker_id: (node.host, node.port) for node in nodes}
    return query_each_broker(addresses, {}, config, timeout_s=timeout_s, unclean=True)


def query_ports(
    addresses: Sequence[str], read: Callable[[Any], Report], *, timeout_s: float
) -> tuple[dict[int, Report], dict[str, str]]:
    """Query JMX ports, all at once; return the reports by node id, and the reasons of others by address.

    Args:
        addresses: ``host:port`` of JMX ports without authentication and encryption.
        read: returns the report from a Java ``MBeanServerConnection``.
        timeout_s: timeout of all requests together.
    """
    start_jvm()
    # RMI reads it before its first request
    jpype.java.lang.System.setProperty("sun.rmi.transport.tcp.responseTimeout", str(round(timeout_s * 1000)))
    deadline = time.monotonic() + timeout_s
    reports: dict[int, Report] = {}
    reasons: dict[str, str] = {}

    def query(address: str) -> None:
        try:
            node, report = _read_port(address, read)
            reports[node] = report
        except jpype.JException as error:
            # messages of RMI have several lines
            reasons[address] = " ".join(JavaError.of(error).text.split()) or JavaError.of(error).java_class
        except LookupError as error:
            reasons[address] = str(error)

    # daemon threads, as in query_each_broker
    threads = {
        address: threading.Thread(target=query, args=(address,), daemon=True, name=JAVA_THREAD) for address in addresses
    }
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    late = {
        address: f"no response within {timeout_s:.0f} s" for address, thread in threads.items() if thread.is_alive()
    }
    return dict(reports), late | dict(reasons)


def _read_port(address: str, read: Callable[[Any], Report]) -> tuple[int, Report]:
    """Return node id and report of a JMX port.

    Raises:
        LookupError: it is not a Kafka node.
    """
    remote = jpype.JPackage("javax").management.remote
    url = remote.JMXServiceURL(f"service:jmx:rmi:///jndi/rmi://{address}/jmxrmi")
    connector = remote.JMXConnectorFactory.connect(url, None)
    try:
        server = connector.getMBeanServerConnection()
        nodes = sorted(_app_infos(server))
        if not nodes:
            raise LookupError("not the JMX port of a Kafka node")
        return nodes[0], read(server)
    finally:
        connector.close()


def _app_infos(server: Any) -> dict[int, Any]:
    """Return the names of the beans with a node's version, by node id; a node has further ones without an id."""
    names = server.queryNames(jpype.JClass("javax.management.ObjectName")(_APP_INFO), None)
    ids = {str(name.getKeyProperty("id")): name for name in names}
    return {int(node): name for node, name in ids.items() if node.isdecimal()}


def read_versions(server: Any) -> JmxReport:
    """Return the versions that a Kafka node reports over a Java ``MBeanServerConnection``."""
    infos = _app_infos(server)
    version = str(server.getAttribute(infos[min(infos)], "Version"))
    pattern = jpype.JClass("javax.management.ObjectName")
    requests = {
        int(str(name.getKeyProperty("version"))): int(server.getAttribute(name, "Count"))
        for name in server.queryNames(pattern(_PRODUCE_REQUESTS), None)
        if str(name.getKeyProperty("version")).isdecimal()
    }
    return JmxReport(version, requests)
