"""What one sees: pictures of results, and the explorer."""
