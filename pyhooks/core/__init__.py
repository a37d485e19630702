"""Support code without knowledge of Kafka: errors, processes, files, locks, waiting, statistics."""
