"""``rackgate adopt``: from no required racks to an enforced R (``min.insync.racks``), step by step.

- ``plan``: state, changes and commands of each step, derived from recorded facts. Pure functions.
- ``run``: takes the steps, against interfaces.
- ``cluster``: the cluster behind these interfaces, with Kafka's Java clients, and metrics from JMX or a lab.

There is no file of state: what is done is read from the cluster. So a command that ended at any point is repeated.
"""
