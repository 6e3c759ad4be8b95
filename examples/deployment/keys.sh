#!/usr/bin/env bash
# Makes what a deployment needs once: a certificate authority, the SuperLink's certificate, and
# an authentication key for each SuperNode.
#   keys.sh FOLDER HOST NODES      for example: keys.sh keys superlink.example.org 3
# HOST is the name (or the IP address) by which SuperNodes reach the SuperLink. ca.key is needed
# only to sign another certificate: take it off the machine. node-N.key goes to party N alone.
set -euo pipefail
folder=${1:?folder} host=${2:?host name or address} nodes=${3:?number of nodes}
mkdir -p "$folder" && chmod 700 "$folder" && cd "$folder"

case $host in
  *[!0-9.]*) name="DNS:$host" ;;
  *) name="IP:$host" ;;
esac
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:secp384r1 -nodes -days 365 -subj "/CN=flwr-fbo CA" \
  -keyout ca.key -out ca.crt 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:secp384r1 -nodes -subj "/CN=$host" -keyout server.key -out server.csr 2>/dev/null
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -out server.pem \
  -extfile <(echo "subjectAltName=$name,DNS:localhost,IP:127.0.0.1") 2>/dev/null
rm server.csr
for ((i = 0; i < nodes; i++)); do
  [ -f "node-$i.key" ] || ssh-keygen -q -t ecdsa -b 384 -N "" -C "node $i" -f "node-$i.key"
done
chmod 600 ./*.key
