"""Keys beyond the window: an index that finds those with the largest products, and attention to what it found."""
