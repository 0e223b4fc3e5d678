"""The gateway's protocol beside inference: `documents` are metadata, statistics, configuration and index; `errors` maps
refusals to the status of HTTP and of gRPC, and back."""
