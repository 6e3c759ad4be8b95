"""Flower's server side: strategies that carry the messages of a method's server."""
