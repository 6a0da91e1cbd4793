"""What pictures are made of: tiles that are drawn fast, text, marks, colours."""
