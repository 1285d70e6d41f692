#!/usr/bin/env bash
# koa-ratelimit 6.0.0 rounds Retry-After down to whole seconds, so it answers a 429 with "Retry-After: 0" while the
# window is still closed. X-RateLimit-Reset has the true end, in epoch seconds with a fraction.
#
# A client that obeys Retry-After alone is refused again: the header is too early by up to a second each time.
#
# Output seen on 28 November 2026 with Node 20.20.2, koa 3.3.0, koa-ratelimit 6.0.0:
#   status 429, Retry-After 2, window ends in 2.974 s
#   status 429, Retry-After 0, window ends in 0.965 s (after the wait that was asked for)
#
# Exits with 0 while this is so, and with 1 once the behaviour has changed.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init --yes >/dev/null
npm install --silent --no-audit --no-fund koa@3.3.0 koa-ratelimit@6.0.0
cat >run.mjs <<'EOF'
import Koa from "koa";
import ratelimit from "koa-ratelimit";

const app = new Koa();
app.use(ratelimit({ driver: "memory", db: new Map(), duration: 3_000, max: 1, id: () => "a" }));
app.use((context) => void (context.body = "ok"));
const server = app.listen(0, "127.0.0.1");
await new Promise((resolve) => server.once("listening", resolve));

async function get() {
  const response = await fetch(`http://127.0.0.1:${server.address().port}/`);
  await response.text();
  const after = response.headers.get("retry-after");
  const endsInS = Number(response.headers.get("x-ratelimit-reset")) - Date.now() / 1_000;
  console.log(`status ${response.status}, Retry-After ${after}, window ends in ${endsInS.toFixed(3)} s`);
  return { status: response.status, after, endsInS };
}

await get();
const refused = await get();
await new Promise((resolve) => setTimeout(resolve, Number(refused.after) * 1_000));
const again = await get();
server.close();
const isAsDescribed = again.status === 429 && again.after === "0" && again.endsInS > 0;
process.exit(isAsDescribed ? 0 : 1);
EOF
node run.mjs
