"""Pictures of many runs: curves, frontiers and heat maps of a sweep."""
