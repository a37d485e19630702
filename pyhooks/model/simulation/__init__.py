"""Years of whole clusters, event by event: what RF, M, R and a placement give, with time in it."""
