"""Load: schedule, pacer, clients and Spark jobs that send records at intended times."""
