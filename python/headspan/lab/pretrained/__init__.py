"""Models of transformers that others trained: loaded, fitted and shown. This needs the extra ``pretrained``."""
