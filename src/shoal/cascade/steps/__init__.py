"""The steps of feature groups: each maps a block of columns to a block, has a form without scikit-learn, and can be
written to an artefact."""
