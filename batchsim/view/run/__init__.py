"""Views of one run, a file a view."""
