"""The search for a schedule: an analytic model that prunes, and measurements that decide."""
