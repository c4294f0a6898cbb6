"""The ``ferrata`` command: a development server, the worker, and checks of graph files."""
