/** Endpoints, and what was sent to them, as people read them. */
import type { Attempt } from "../webhooks/delivery/attempt-entry.ts";
import type { Endpoint } from "../webhooks/endpoints/record.ts";
import type { LogPage } from "../webhooks/log/log.ts";
import { onOneLine, table } from "./io.ts";

export function next(cursor: string | undefined): string[][] {
  return cursor === undefined ? [] : [[`more: --cursor ${cursor}`]];
}

function stateOf({ disabled }: Endpoint): string {
  return disabled === undefined ? "enabled" : `disabled: ${disabled.why}`;
}

export function describeEndpoints(page: {
  readonly endpoints: readonly Endpoint[];
  readonly cursor: string | undefined;
}): string {
  if (page.endpoints.length === 0) return "There is no endpoint.";
  const rows = page.endpoints.map((each) => [
    each.id,
    // A path may be as good as a password.
    new URL(each.url).origin,
    each.types?.join(" ") ?? "all",
    stateOf(each),
  ]);
  return table(["endpoint", "sends to", "types", "state"], [...rows, ...next(page.cursor)]);
}

export function describeEndpoint(endpoint: Endpoint): string {
  const { url, types, rate, concurrency, secrets, headers, ordered, waiting } = endpoint;
  const facts = {
    url,
    state: stateOf(endpoint),
    types: types?.join(" ") ?? "all",
    rate: rate === undefined ? "the sender's" : JSON.stringify(rate),
    concurrency: String(concurrency ?? "the sender's"),
    ordered: ordered ? `yes, ${waiting} wait` : "no",
    secrets: `${secrets} in force`,
    headers: headers.join(", ") || "none of its own",
  };
  const lines = Object.entries(facts).map(([name, fact]) => `${`${name}:`.padEnd(13)}${fact}`);
  return lines.map(onOneLine).join("\n");
}

export function describeLog({ entries, cursor }: LogPage<Attempt>): string {
  if (entries.length === 0) return "There is no attempt.";
  const rows = entries.map((entry) => [
    new Date(entry.atMs).toISOString(),
    entry.message,
    entry.endpoint,
    `${entry.attempt}${entry.purpose === "send" ? "" : ` (${entry.purpose})`}`,
    entry.outcome,
    String(entry.status ?? "-"),
    `${Math.round(entry.durationMs)} ms`,
    entry.error ?? "",
  ]);
  const heads = ["ended", "message", "endpoint", "attempt", "outcome", "status", "took", "error"];
  return table(heads, [...rows, ...next(cursor)]);
}
