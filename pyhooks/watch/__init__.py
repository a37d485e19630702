"""A live view of a cluster by racks: observe, derive, show. Each step is a module that knows nothing of the next."""
