"""Client programs that run beside a test and write events to its history."""
