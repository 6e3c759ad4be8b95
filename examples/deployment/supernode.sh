#!/usr/bin/env bash
# A party's side: keeps its SuperNode running. The party's data, its journal and its privacy
# ledger stay on this machine, in FLWR_FBO_HOME.
#   supernode.sh KEYS SUPERLINK PARTY PARTIES [PORT [LIMITS]]
# for example: supernode.sh keys superlink.example.org:8000 0 3
# KEYS holds ca.crt and node-PARTY.key. PORT is free on this machine and needs not be reachable.
# LIMITS are the owner's own, such as "epsilon-limit=1.0 answer-within=0".
#
# A SuperNode that dies is started again. The SuperLink takes the same key back only when it has
# noticed that the dead one is gone, about a minute later; until then new attempts end at once.
set -euo pipefail
keys=$(cd "${1:?folder with keys}" && pwd) superlink=${2:?host:port}
party=${3:?number of this party, from 0} parties=${4:?number of parties} port=${5:-9094} limits=${6:-}
export FLWR_TELEMETRY_ENABLED=0

node=
trap 'kill "$node" 2>/dev/null; wait "$node"; exit 0' TERM INT
while true; do
  flower-supernode --superlink "$superlink" --port "$port" \
    --root-certificates "$keys/ca.crt" --auth-supernode-private-key "$keys/node-$party.key" \
    --node-config "partition-id=$party num-partitions=$parties $limits" &
  node=$!
  wait "$node" || echo "the SuperNode of party $party ended with code $?; starting it again" >&2
  sleep 5 &
  wait $!
done
