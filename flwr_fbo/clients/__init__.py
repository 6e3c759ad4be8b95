"""Flower's client side: the clients that pass tuning messages to agents and send replies."""
