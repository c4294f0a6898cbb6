"""Benchmarks: Ferrata beside hand-written Temporal workflows of the same work, in the same run, as ratios."""
