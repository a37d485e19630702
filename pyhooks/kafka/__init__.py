"""Kafka requests, topics, tools and cluster state; and the ISR gate as a pure function."""
