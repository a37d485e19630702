"""What min.insync.replicas and min.insync.racks mean where a cluster has its replicas, and how to mend a placement."""
