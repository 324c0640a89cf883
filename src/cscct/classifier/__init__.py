"""A classifier that keeps learning, for use: the estimator, its folder on disk, export and serving."""
