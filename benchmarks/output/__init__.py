"""What is told of it: tables in text, and the README's figures."""
