"""What min.insync.replicas and min.insync.racks mean for a cluster's placements, measured and modelled."""
