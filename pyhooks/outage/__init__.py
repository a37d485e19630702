"""``rackgate lower``, ``restore`` and ``audit``: the outage procedure of ``kip/operations.md`` as commands.

- ``steps``: lowering and restoring, against interfaces, so that tests can stop them at each step.
- ``cluster_access``: the cluster behind these interfaces, with Kafka's Java clients.
- ``audit_report``: the audit as a table and as JSON.

Configs of Kafka have no compare-and-set. So each value is read before it is changed and verified after, and operators
see each other's intentions in the audit (``pyhooks.audit``).
"""
