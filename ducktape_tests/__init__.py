"""System tests of min.insync.racks, run by ducktape in a lab or on the hosts of a cluster file."""
