#!/usr/bin/env bash
# The server's side: lets SuperNodes in, by their public keys.
#   register.sh CONNECTION KEY.pub ...      CONNECTION as in Flower's config.toml
set -euo pipefail
connection=${1:?connection}
shift
for key in "$@"; do
  flwr supernode register "$key" "$connection"
done
