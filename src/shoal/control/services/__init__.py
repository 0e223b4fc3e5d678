"""Services: deployments that run until they are stopped, as replicas that are jobs like any other.

Senses which replicas live (the control plane's view) and which are ready (the gateway's status); decides in a pure
`plan` which to start and which to end, so that an update never takes a replica away before a new one is ready; acts by
submitting and cancelling jobs, and by telling the gateway what to serve. After the deployment controller of Kubernetes.
"""
