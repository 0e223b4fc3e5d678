"""Models at the end of a pipeline, in forms that need no scikit-learn: linear, trees, and what only Python can run."""
