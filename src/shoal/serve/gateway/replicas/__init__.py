"""The replicas behind a gateway: started, connected, given requests, and replaced."""
