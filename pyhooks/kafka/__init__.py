"""Questions to and requests of a Kafka cluster, and the gate as a pure function."""
