"""Arguments of an attention: the table of options, and the checks, each made once."""
