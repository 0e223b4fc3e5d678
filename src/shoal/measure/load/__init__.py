"""Load as a client makes it: arrivals, inputs and traces, on the wire, each answer timed."""
