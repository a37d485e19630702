"""Python access to Kafka's Java clients: in this process through jpype, or in separate JVMs through py4j."""
