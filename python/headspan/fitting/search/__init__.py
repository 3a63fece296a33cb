"""The search for spans: their price, their measured losses, and the two methods, descent and measured steps."""
