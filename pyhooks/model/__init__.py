"""What a replication factor, min.insync.replicas (M), min.insync.racks (R) and a placement buy, in numbers."""
