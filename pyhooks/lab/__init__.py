"""Lab: racks, brokers and links as namespaces of this machine, with Kafka in them."""
