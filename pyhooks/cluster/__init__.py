"""A lab: racks, brokers and links as namespaces of this machine, and Kafka in them."""
