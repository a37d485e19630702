"""Monitoring with Prometheus and Grafana: rules of the JMX exporter, alert rules and a dashboard."""
