"""One visitor: logs and pools, a run from request to record, warm-up, replay, limits."""
