"""Examples that run on real input. Each folder holds a graph, what it calls, and a README."""
