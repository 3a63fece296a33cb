"""One attention on the core: the checked arguments in the form of the core, and the calls forward and backward."""
