/** Four processes that call a downstream for customers and their endpoints, judged there by both. */
import { expect } from "vitest";
import { worstWindow, type Arrival, type FakeDownstream } from "sluice/testing";
import { waitUntil } from "../async/wait-until.ts";
import type { Child, Children } from "../children/child.ts";
import { extraSlots } from "./steady-draws.ts";

/** How long the downstream takes for a call. */
export const LATENCY_MS = 40;
export const ENDPOINTS: readonly (readonly [customer: string, endpoint: string])[] = [
  ["acme", "e1"],
  ["acme", "e2"],
  ["acme", "e3"],
  ["acme", "e4"],
  ["globex", "e1"],
  ["initech", "e1"],
];

type Downstream = Omit<FakeDownstream, "close">;

/** Each process makes so many calls for each endpoint. */
export async function startFour(
  processes: Children,
  {
    url,
    prefix,
    downstream,
    calls,
  }: { url: string; prefix: string; downstream: Downstream; calls: number },
): Promise<Child[]> {
  const args = [url, prefix, downstream.url, String(calls), JSON.stringify(ENDPOINTS)];
  const replicas = Array.from({ length: 4 }, () => processes.start("tenant-replica.ts", args));
  await waitUntil(() => replicas.every(({ messages }) => messages.length === 1), "all are ready");
  for (const replica of replicas) replica.send("go");
  return replicas;
}

/** Checks the limits of `tenant-replica.ts`: of all, of each customer and of each endpoint. */
export function assertBounds({ arrivals }: Downstream): void {
  const below = (path: string): readonly Arrival[] =>
    arrivals.filter((arrival) => `${arrival.path}/`.startsWith(path));
  const extra = (path: string, perSecond: number): number => {
    const slots = below(path).map(({ headers }) => Number(headers["x-slot-ms"]));
    return extraSlots(slots, { perSecond });
  };
  expect(extra("/", 200)).toBe(0);
  for (const [customer, endpoint] of ENDPOINTS) {
    const ofCustomer = below(`/${customer}/`).map(({ atMs }) => atMs);
    // Each call holds its lease for as long as the downstream takes: no five lie within that time.
    const most = worstWindow(ofCustomer, LATENCY_MS - 5);
    const path = `/${customer}/${endpoint}/`;
    expect({
      path,
      most: Math.max(4, most),
      extra: [extra(`/${customer}/`, 60), extra(path, 20)],
    }).toEqual({
      path,
      most: 4,
      extra: [0, 0],
    });
  }
}
