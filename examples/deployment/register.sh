#!/usr/bin/env bash
# The server's side: lets SuperNodes in, by their public keys.
#   register.sh CONNECTION KEY.pub ...      CONNECTION as in Flower's config.toml
# Give the keys in the order of the parties' numbers. The last line that is printed says which node
# each party has: put it into the run-config, so that no node can take another party's place.
set -euo pipefail
connection=${1:?connection}
shift
nodes=()
for key in "$@"; do
  # Where colours are forced, as notebooks do, the answer could not be read.
  answer=$(env -u FORCE_COLOR -u CLICOLOR_FORCE -u TTY_COMPATIBLE flwr supernode register "$key" "$connection" --format json)
  node=$(sed -n 's/.*"node-id": *"\{0,1\}\([0-9]*\).*/\1/p' <<<"$answer")
  [ -n "$node" ] || { echo "$key was not registered: $answer" >&2; exit 1; }
  echo "$key is node $node"
  nodes+=("$node")
done
ids=$(IFS=,; echo "${nodes[*]}")
echo "node-ids='$ids'"
