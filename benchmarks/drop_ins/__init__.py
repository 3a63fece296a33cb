"""Small models in the form of well-known projects, and the same models with the diffs of docs/howto/drop-ins.md."""
