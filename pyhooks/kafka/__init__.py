"""Kafka requests, topics, tools and cluster state; and the ISR gate as a pure function.

Each kind of request has one implementation:

- own requests (``wire_protocol``): data that librdkafka does not report, and state that is polled while brokers are
  unavailable: metadata with racks from each broker by itself, feature levels, the metadata quorum. Each broker has its
  own timeout; a JVM or a client that waits for one dead broker would miss the moment under test.
- confluent-kafka (``topics``, ``bulk_topics``): creating, describing and configuring topics, and elections, on the
  clusters of labs, tests and benchmarks; no JVM is needed.
- Kafka's Java admin client (``pyhooks.jvm.admin``): ``rackgate check`` on clusters of users, with all of Kafka's
  security settings and with ELRs, which confluent-kafka does not return.
- Kafka's command-line tools (``tools``): commands of operators, and requests that no client offers, such as feature
  upgrades and reassignments of a lab.
"""
