"""Reports: figures, tables and pages from stored results."""
