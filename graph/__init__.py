"""The graph language: pure models and rules, shared by workflows and activities.

Nothing in this package imports temporalio or performs I/O, so workflow code may import
it and every rule in it can be tested without a server.
"""
