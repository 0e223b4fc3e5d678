"""What the sharing of a device is measured with: a device that is simulated (`simulate`)."""
