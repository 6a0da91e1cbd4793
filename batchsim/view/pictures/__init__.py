"""Pictures of results: the views of one run, and charts of many runs and of measurements."""
