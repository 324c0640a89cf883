"""Classifiers in use: the estimator, model folders, export and serving."""
