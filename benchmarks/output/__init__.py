"""What is told of it: tables in text, the README's figures, and JSON."""
