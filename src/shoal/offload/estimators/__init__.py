"""Whole calls of scikit-learn's estimators, which stay scikit-learn's own objects."""
