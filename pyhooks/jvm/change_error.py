"""Errors of changes: whether the cluster rejected a change, or it is unknown whether it was applied."""

from __future__ import annotations

from pyhooks.core.errors import RackgateError
from pyhooks.jvm.admin import TIMEOUT, UNKNOWN_TOPIC
from pyhooks.jvm.java_exception import ERRORS, JavaError
from pyhooks.kafka.topics import RejectedError

# Errors of a request that was processed but not applied.
REJECTIONS = frozenset(
    {
        UNKNOWN_TOPIC,
        *(
            f"{ERRORS}.{name}Exception"
            for name in (
                "InvalidConfiguration",
                "InvalidRequest",
                "InvalidUpdateVersion",
                "FeatureUpdateFailed",
                "PolicyViolation",
                "TopicAuthorization",
                "ClusterAuthorization",
                "UnsupportedVersion",
            )
        ),
    }
)


def change_error(action: str, error: JavaError) -> RackgateError:
    """Return a RejectedError if the cluster applied nothing of ``action``, else an error after which it is unknown."""
    reason = "no response in time" if error.java_class == TIMEOUT else error.text or error.java_class
    if error.java_class in REJECTIONS:
        return RejectedError(f"{action}: rejected by the cluster: {reason}", exit_status=1)
    return RackgateError(f"{action}: failed: {reason}")
