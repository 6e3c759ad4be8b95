"""The commands of ``flwr-fbo`` that do not run anything; :mod:`flwr_fbo.cli.main` joins them."""
