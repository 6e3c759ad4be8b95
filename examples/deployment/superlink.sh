#!/usr/bin/env bash
# The server's side: starts the SuperLink with TLS, and lets in only SuperNodes that are
# registered (register.sh). Keep it running; the run directory and the ledger are in FLWR_FBO_HOME.
#   superlink.sh KEYS [PORT] [ADDRESS]
set -euo pipefail
keys=$(cd "${1:?folder with keys}" && pwd) port=${2:-8000} address=${3:-0.0.0.0}
# `flwr run @PUBLISHER/NAME==VERSION` makes the SuperLink ask here for the signed app (apps.py serve).
export FLWR_SUPERGRID_API_URL=${FLWR_SUPERGRID_API_URL:-http://127.0.0.1:8080}
export FLWR_TELEMETRY_ENABLED=0
# With --database the SuperLink still knows its runs and nodes when it is started again.
exec flower-superlink --host "$address" --port "$port" \
  --ssl-ca-certfile "$keys/ca.crt" --ssl-certfile "$keys/server.pem" --ssl-keyfile "$keys/server.key" \
  --enable-supernode-auth --disable-runtime-dependency-installation \
  --database "$keys/superlink.db"
