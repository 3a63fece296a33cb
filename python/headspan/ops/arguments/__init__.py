"""What an attention is called with: each argument checked once, and brought to the form that the core takes."""
