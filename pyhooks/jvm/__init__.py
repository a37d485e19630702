"""Kafka's own Java clients from Python: in this process through jpype, or in JVMs of their own through py4j."""
