"""Everything that this app brings to a node: the two apps of the installed flwr-fbo."""

from flwr_fbo.clients.client_app import app as client
from flwr_fbo.strategies.server_app import app as server

__all__ = ["client", "server"]
