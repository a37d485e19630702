"""Audit of lowered ``min.insync.racks`` (R): records, their replay, and the file and the topic that keep them.

A lowering is one change of one topic's R by ``rackgate lower``. Each step of it is a record, written before the step
where a crash could otherwise leave a change that nothing explains. Nothing is ever deleted or rewritten. Its state is
derived by replaying the records (``replay``, pure functions).

Each record is kept twice, in a file of this host and in a topic of the cluster:

- losing the file, for example with the host, loses the records that the topic did not take, which are reported when
  they are written;
- losing the topic loses the records of other hosts; those of this host are in the file, and are appended to the topic
  again by the next command that writes one.
"""
