"""The chips of the paper, in cycles: Plasticine with a loop for each cell, and Brainwave with matrix-vector tiles."""
