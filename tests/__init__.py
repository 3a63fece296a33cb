"""The tests are a package because an installed package named `tests` would hide a folder that is none."""
