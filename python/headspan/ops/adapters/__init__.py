"""What the adapters to frameworks with tensors share: which options are tensors, their axes, and patterns as text."""
