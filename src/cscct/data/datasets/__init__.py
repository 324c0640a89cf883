"""The built-in datasets, a file for each layout; `data/registry.py` names them."""
