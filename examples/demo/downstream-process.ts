/**
 * The demo's downstream, which has the servers of all customers. It runs in a separate process, because other work in
 * the same process would make calls seem later than they were.
 */
import process from "node:process";
import { Webhook } from "standardwebhooks";
import { startFakeDownstream, type Arrival } from "sluice/testing";
import type { FromDownstream, ToDownstream } from "./downstream.ts";
import { createStandstills } from "./standstills.ts";

const REPORT_EVERY_MS = 100;
const RING_EVERY_MS = 2;

const { maxPerSecond, secrets, silentPath } = JSON.parse(process.argv[2]!) as ToDownstream;
const verifiers = new Map(
  Object.entries(secrets).map(([path, secret]) => [path, new Webhook(secret)]),
);
const standstills = createStandstills(RING_EVERY_MS);
setInterval(standstills.ring, RING_EVERY_MS).unref();
/** Webhooks with an invalid signature, by their numbers among the arrivals. */
const untrue = new Set<Arrival["headers"]>();
let hasRefused = false;

const WARM_UP_CALLS = 100;
const WARM_UP_BODY = JSON.stringify("-".repeat(10_000));

/**
 * Verifies a few webhooks before the first real one arrives. The first verifications take 10 ms longer, which would
 * make the next call look late.
 */
function warmUp(verifier: Webhook): void {
  for (let call = 0; call < WARM_UP_CALLS; call++) {
    const at = new Date();
    verifier.verify(WARM_UP_BODY, {
      "webhook-id": "warm-up",
      "webhook-timestamp": String(Math.floor(at.getTime() / 1_000)),
      "webhook-signature": verifier.sign("warm-up", at, WARM_UP_BODY),
    });
  }
}

/** Verifies a call as a receiver does that uses the official library, and not Sluice. */
function isVerified({ path, headers, body }: Arrival): boolean {
  try {
    verifiers.get(path)!.verify(body, headers as Record<string, string>);
    return true;
  } catch {
    return false;
  }
}

function answer(arrival: Arrival): number | undefined {
  if (!isVerified(arrival)) {
    untrue.add(arrival.headers);
    return 400;
  }
  if (hasRefused || arrival.path === silentPath || arrival.status !== 200) return undefined;
  // Answers the first webhook with an error, so that it is retried.
  hasRefused = true;
  return 503;
}

warmUp(verifiers.get(silentPath)!);
const downstream = await startFakeDownstream({
  maxPerSecond,
  answer,
  seenLateMs: standstills.longestOfLastSecondMs,
});
let seen = 0;

function send(message: FromDownstream): void {
  process.send?.(message);
}

function report(isLast: boolean): void {
  const arrivals = downstream.arrivals.slice(seen);
  seen += arrivals.length;
  const calls = arrivals
    .filter(({ path }) => path !== silentPath)
    .map(({ atMs, path, headers, status }) => ({
      atMs,
      customer: path.slice(1),
      delivery: String(headers["webhook-id"]),
      worker: String(headers["user-agent"]),
      isVerified: !untrue.has(headers),
      status,
    }));
  const stalledMs = standstills.longestOfLastSecondMs();
  send({ kind: "report", nowMs: performance.now(), calls, stalledMs, isLast });
}

const timer = setInterval(() => report(false), REPORT_EVERY_MS);
process.once("message", () => {
  clearInterval(timer);
  report(true);
});
send({ kind: "listening", url: downstream.url });
