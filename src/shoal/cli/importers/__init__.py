"""What other schedulers' users bring along, made manifests of jobs: `ffdl` reads the manifests of FfDL
(Middleware'19), `slurm` the batch scripts of Slurm."""
