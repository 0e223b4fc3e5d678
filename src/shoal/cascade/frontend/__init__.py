"""From what users have to a program: scikit-learn pipelines, and Python functions of marked features."""
