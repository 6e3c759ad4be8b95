#!/usr/bin/env bash
# A party's side: keeps its SuperNode running. The party's data, its journal and its privacy
# ledger stay on this machine, in FLWR_FBO_HOME.
#   supernode.sh KEYS SUPERLINK PARTY PARTIES [PORT [LIMITS]]
# for example: supernode.sh keys superlink.example.org:8000 0 3
# KEYS holds ca.crt, node-PARTY.key and trusted.yaml, the keys of those whose signed apps may run here
# (apps.py trust). UNSIGNED_APPS=1 lets any app run that somebody submits to the SuperLink: whoever
# may submit one can then read the party's data, whatever the limits below say.
# PORT is free on this machine and needs not be reachable.
# LIMITS are the owner's own, such as "epsilon-limit=1.0 answer-within=0".
#
# A SuperNode that dies is started again. The SuperLink takes the same key back only when it has
# noticed that the dead one is gone, about a minute later; until then new attempts end at once, and
# the pause between them grows from 5 to 20 seconds.
#
# A watchdog also starts a SuperNode again that is up but of no use for STUCK_SECONDS (150): it has
# no SuperExec, it has a message and no process that answers the message, or it sends the reply to
# another message than the one that it received last. (After a process has died, Flower 1.41 may
# stay one reply behind for good.) An evaluation may take any time, as its process lives meanwhile.
set -euo pipefail
keys=$(cd "${1:?folder with keys}" && pwd) superlink=${2:?host:port}
party=${3:?number of this party, from 0} parties=${4:?number of parties} port=${5:-9094} limits=${6:-}
stuck=${STUCK_SECONDS:-150}
export FLWR_TELEMETRY_ENABLED=0

apps=(--trusted-entities "$keys/trusted.yaml")
if [ -n "${UNSIGNED_APPS:-}" ]; then
  apps=()
  echo "this node runs every app that is submitted to $superlink, signed or not" >&2
elif [ ! -s "$keys/trusted.yaml" ]; then
  echo "$keys/trusted.yaml is missing: it must name the keys whose signed apps may run here." >&2
  echo "Make it with apps.py trust KEY.pub, or allow every app with UNSIGNED_APPS=1." >&2
  exit 1
fi

# Holds the file "asked" while the SuperNode has a message that it has not answered, and the file
# "behind" after it has sent another reply than the one that is due.
notes=$(mktemp -d)

# Prints what the SuperNode says, and keeps the file.
follow() {
  local line round='' received='' sent=''
  while IFS= read -r line; do
    printf '%s\n' "$line"
    case $line in
      *"[RUN "*) round=${line#*"[RUN "} ;;
      *"Receiving: "*) received=$round && touch "$notes/asked" ;;
      *"Failed to receive"*) rm -f "$notes/asked" ;;
      *"Sending: "*) sent=$round ;;
      *"Sent successfully"* | *"Failed to send"* | *"Ignoring reply"*)
        if [ "$sent" = "$received" ]; then rm -f "$notes/asked" "$notes/behind"; else touch "$notes/behind"; fi ;;
    esac
  done
}

# Whether a program with this name runs below the SuperNode. Without -ww, a COLUMNS that is exported
# cuts the names off, and every SuperNode would seem useless.
below() {
  ps -A -ww -o pid= -o ppid= -o stat= -o args= | awk -v node="$node" -v name="$1" '
    { parent[$1] = $2; if ($3 !~ /^Z/ && index($0, name)) candidate[$1] }
    END {
      for (p in candidate) { for (q = p; q in parent; q = parent[q]) if (q == node) found = 1 }
      exit !found
    }'
}

# Kills the SuperNode when it has been of no use for long enough.
watch() {
  local useless=0
  while sleep 10; do
    if below flower-superexec && [ ! -e "$notes/behind" ] &&
      { [ ! -e "$notes/asked" ] || below flwr-clientapp; }; then
      useless=0
    elif ((useless += 10, useless >= stuck)); then
      echo "the SuperNode of party $party answers nothing; ending it" >&2
      kill -9 "$node"
    fi
  done
}

node= watchdog= pause=5
trap 'kill $watchdog $node 2>/dev/null || true; wait; rm -rf "$notes"; exit 0' TERM INT
while true; do
  rm -f "$notes/asked" "$notes/behind"
  began=$SECONDS
  flower-supernode --superlink "$superlink" --port "$port" \
    --root-certificates "$keys/ca.crt" --auth-supernode-private-key "$keys/node-$party.key" \
    ${apps[@]+"${apps[@]}"} \
    --node-config "partition-id=$party num-partitions=$parties $limits" > >(follow) 2>&1 &
  node=$!
  watch &
  watchdog=$!
  wait "$node" || echo "the SuperNode of party $party ended with code $?; starting it again" >&2
  kill "$watchdog" 2>/dev/null || true
  if ((SECONDS - began > 15)); then pause=5; fi
  sleep "$pause" &
  wait $!
  pause=$((pause < 20 ? pause * 2 : 20))
done
