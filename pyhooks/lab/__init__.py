"""Lab: a Kafka cluster with racks, brokers and links as Linux namespaces of this machine."""
