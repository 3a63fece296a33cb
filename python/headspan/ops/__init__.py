"""What is computed on arrays: attention and its gradient, its weights, its cost, spans, and the plain definition."""
