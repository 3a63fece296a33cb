"""Arguments of an attention: each is checked once and converted to the form that the core takes."""
