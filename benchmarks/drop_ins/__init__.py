"""Small models as others write them, and the same with the diffs of docs/howto/drop-ins.md."""
