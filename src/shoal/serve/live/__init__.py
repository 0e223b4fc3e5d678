"""Services: deployments that run until they are stopped, as replicas that are jobs like any other.

`extension` joins the server; `manager` is every way to ask for a service, change one or ask about one, and `api` its
routes. `reconciler` is the loop around the pure `plan`: it senses which replicas live and which are ready (the
gateway's status), and acts by submitting and cancelling jobs and by telling the gateway's process (`gateway`) what to
serve. `steps` changes a service's rows, `replicas` makes jobs of replicas, `routes` says how versions share requests
while an update rolls. After the deployment controller of Kubernetes.
"""
