"""The groups in which `shoal --help` shows commands, in its order. A component names one of them for its commands."""

START, JOBS, SERVICES, TENANTS = "Start here", "Jobs", "Services", "Tenants"
SERVER = "Server"
TOOLS = "Tools that need no server"

PANELS = (START, JOBS, SERVICES, TENANTS, SERVER, TOOLS)
