"""Kafka's own system tests (``tests/kafkatest`` of a checkout of apache/kafka) on stock Kafka and with the overlay."""
