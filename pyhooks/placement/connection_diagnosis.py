"""Diagnosis of a listener that does not respond: nothing listens, or client and listener use different protocols.

If a listener closes the connection without a reason, Kafka's clients retry until their timeout. It does so if the
client uses TLS on a plaintext listener, plaintext on a TLS listener, or no authentication where it is required.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping

from pyhooks.core.errors import RackgateError
from pyhooks.kafka import wire_protocol
from pyhooks.kafka.wire_protocol import Reader

EACH_S = 0.5
ADDRESSES_MAX = 2
_SASL_HANDSHAKE = 17
_NONE = b"rackgate-asks-which"  # not a SASL mechanism, so a SASL listener responds with those that it supports


def diagnose(bootstrap: str, config: Mapping[str, str]) -> str:
    """Return the reason found at the first ``ADDRESSES_MAX`` addresses, or an empty text; takes about 2 s at most."""
    wanted = config.get("security.protocol", "PLAINTEXT").upper()
    for one in bootstrap.split(",")[:ADDRESSES_MAX]:
        try:
            address = wire_protocol.address(one.rpartition("://")[2])
        except ValueError:
            continue
        if reason := _reason(address, wanted):
            return f"{address[0]}:{address[1]} {reason}"
    return ""


def _reason(address: tuple[str, int], wanted: str) -> str:
    try:
        tls = _speaks_tls(address)
    except OSError as error:
        return f"can't be reached: {error.strerror or error}"
    if tls:
        return "" if wanted.endswith("SSL") else "speaks TLS: set security.protocol to SSL or SASL_SSL"
    mechanisms = _sasl_mechanisms(address)
    if mechanisms is None:
        return ""
    right = "SASL_PLAINTEXT" if mechanisms else "PLAINTEXT"
    if wanted == right:
        return ""
    needs = f" and requires SASL ({', '.join(mechanisms)})" if mechanisms else ""
    return f"speaks no TLS{needs}: set security.protocol to {right}, not {wanted}"


def _speaks_tls(address: tuple[str, int]) -> bool:
    """Return whether a listener takes part in a TLS handshake.

    Raises:
        OSError: the connection fails.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # no data is sent, so the server's identity does not matter
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(address, timeout=EACH_S) as plain:
        try:
            with context.wrap_socket(plain, do_handshake_on_connect=False) as talk:
                talk.do_handshake()
        except ssl.SSLError as error:
            # a TLS alert shows that the listener uses TLS; a handshake that just ended does not
            return "ALERT" in (error.reason or "")
        except OSError:
            return False
        return True


def _sasl_mechanisms(address: tuple[str, int]) -> tuple[str, ...] | None:
    """Return the SASL mechanisms of a listener without TLS; empty without authentication, None if it is not Kafka."""
    request = wire_protocol.framed(_SASL_HANDSHAKE, 1, struct.pack(">h", len(_NONE)) + _NONE)
    try:
        return wire_protocol.query(address, request, "SaslHandshake", EACH_S, _mechanisms)
    except RackgateError:
        return None


def _mechanisms(answer: bytes) -> tuple[str, ...]:
    at = Reader(answer)
    at.take(6)  # correlation and error code
    return tuple(at.text() or "" for _ in range(at.count()))
