"""The drawing toolkit below all pictures: tiles that are drawn fast, text, axes, colours."""
