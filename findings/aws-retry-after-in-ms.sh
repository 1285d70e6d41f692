#!/usr/bin/env bash
# The AWS SDK for JavaScript 3.1175.0 reads x-amz-retry-after in milliseconds, and Retry-After in seconds. Nothing in the
# name states the unit. A reader that takes the header for seconds stops for 700 s instead of 700 ms.
#
# Output seen on 28 November 2026 with Node 20.20.2, @aws-sdk/client-sqs 3.1175.0:
#   x-amz-retry-after: 700 -> waits of 709, 706 ms
#   retry-after: 2 -> waits of 2006, 2004 ms
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund @aws-sdk/client-sqs@3.1175.0
cat >run.mjs <<'EOF'
import { createServer } from "node:http";
import { ListQueuesCommand, SQSClient } from "@aws-sdk/client-sqs";

async function waitsAfter(name, value) {
  const atMs = [];
  const server = createServer((_request, response) => {
    atMs.push(performance.now());
    const headers = { "content-type": "application/x-amz-json-1.0", [name]: value };
    response.writeHead(503, headers).end('{"__type":"ServiceUnavailable"}');
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = new SQSClient({
    region: "eu-west-1",
    endpoint: `http://127.0.0.1:${server.address().port}`,
    credentials: { accessKeyId: "a", secretAccessKey: "b" },
  });
  await client.send(new ListQueuesCommand({})).catch(() => {});
  client.destroy();
  server.close();
  const waits = atMs.slice(1).map((at, index) => Math.round(at - atMs[index]));
  console.log(`${name}: ${value} -> waits of ${waits.join(", ")} ms`);
  return waits;
}

const inMs = await waitsAfter("x-amz-retry-after", "700");
const inSeconds = await waitsAfter("retry-after", "2");
const isAsDescribed =
  inMs.length === 2 &&
  inMs.every((wait) => wait >= 690 && wait < 10_000) &&
  inSeconds.every((wait) => wait >= 1_990);
process.exit(isAsDescribed ? 0 : 1);
EOF
NODE_NO_WARNINGS=1 node run.mjs
