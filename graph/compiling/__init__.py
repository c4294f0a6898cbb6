"""The parts of the compiler, one per thing that a node may hold. :mod:`graph.compile` puts them together."""
