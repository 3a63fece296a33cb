"""The tests. This file makes them a package, since an installed package named `tests` would hide a folder without one."""
