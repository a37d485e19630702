"""Effect of min.insync.replicas and min.insync.racks on replica placements, checked on a cluster and modelled."""
