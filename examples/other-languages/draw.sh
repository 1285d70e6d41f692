#!/bin/bash
# Waits for a slot with curl alone, and then runs a command: draw.sh bucket command…
# Start a server first: npx sluice serve --redis redis://127.0.0.1 --insecure-local
set -euo pipefail
server=${SLUICE_URL:-http://127.0.0.1:3010}
bucket=$1
shift

ask() { curl -sS --fail-with-body --json "$2" ${SLUICE_TOKEN:+-H "authorization: Bearer $SLUICE_TOKEN"} "$server$1"; }

# With holdMs, the response contains an id, which releases the slot.
slot=$(ask "/v1/buckets/$bucket/draw" '{"maxWaitMs":10000,"holdMs":600000}')
id=$(sed -E 's/.*"id":"([^"]+)".*/\1/' <<<"$slot")
trap 'ask "/v1/slots/$id/release" "{}" >/dev/null' EXIT
"$@"
