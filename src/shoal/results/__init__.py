"""Results of jobs, side by side: in which fields of their manifests they differ, and what came of it."""
