"""What runs inside the sandbox: Python 3.14 in wasm, where this package is called ``ferrata``. Not for import by the
host: see ``exports`` for what the host calls.
"""
