"""Client programs that run beside a test and write events into its history."""
