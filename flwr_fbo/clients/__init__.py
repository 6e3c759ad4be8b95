"""Flower's client side: agents behind a NumPyClient, whichever way a message came in."""
