"""A network of fixed shapes as one compiled call: small stateless parts, recurrent layers, and no Python between."""
