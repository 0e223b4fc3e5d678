"""What others published, to compare with: loaded only when it is asked for."""
