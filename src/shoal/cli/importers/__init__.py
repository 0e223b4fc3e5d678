"""Importers, which make manifests of jobs from what users of other schedulers have: `ffdl` reads the manifests of FfDL
(Middleware'19), `slurm` the batch scripts of Slurm."""
