/** Four processes that call one downstream for tenants, each through another door. */
import type { BucketOptions } from "sluice";
import type { Arrival } from "sluice/testing";
import { waitUntil } from "../async/wait-until.ts";
import type { Child, Children } from "../children/child.ts";

export const DOORS = ["inline", "jobs", "http", "forward"] as const;
export type Door = (typeof DOORS)[number];

/** What a process of `processes/fair-caller.ts` is given. */
export interface FairCallerSettings {
  readonly redis: string;
  readonly prefix: string;
  readonly url: string;
  readonly policy: BucketOptions;
  readonly door: Door;
}

/** Calls that a process makes at once for a tenant. */
export interface FairOrder {
  readonly key: string;
  readonly cost: number;
  readonly count: number;
  /** True if each of the calls is made again when it has ended. Jobs are enqueued once. */
  readonly isLoop?: boolean;
  readonly calledAtMs?: number;
}

export interface FairCallers {
  order(door: Door, ...orders: readonly FairOrder[]): void;
  /** What went wrong in the processes. */
  readonly failures: readonly unknown[];
}

/** Starts a process for each door. */
export async function startFairCallers(
  processes: Children,
  settings: Omit<FairCallerSettings, "door">,
): Promise<FairCallers> {
  const started = new Map<Door, Child>(
    DOORS.map((door) => [
      door,
      processes.start("fair-caller.ts", [JSON.stringify({ ...settings, door })]),
    ]),
  );
  const areReady = (): boolean =>
    [...started.values()].every(({ messages }) => messages.length > 0);
  await waitUntil(areReady, "the processes are ready");
  return {
    order: (door, ...orders) => started.get(door)!.send(JSON.stringify(orders)),
    get failures() {
      return [...started.values()].flatMap(({ messages }) => messages.slice(1));
    },
  };
}

/** A call as the downstream saw it. Times are in ms since 1970. */
export interface FairCall {
  readonly tenant: string;
  readonly cost: number;
  readonly door: string;
  readonly calledAtMs: number;
  readonly arrivedMs: number;
}

export function fairCalls(arrivals: readonly Arrival[]): FairCall[] {
  return arrivals.map(({ headers, atMs }) => ({
    tenant: String(headers["x-key"]),
    cost: Number(headers["x-cost"]),
    door: String(headers["x-door"]),
    calledAtMs: Number(headers["x-called-ms"]),
    arrivedMs: performance.timeOrigin + atMs,
  }));
}

/** What calls cost together. */
export function unitsOf(calls: readonly FairCall[], tenant?: string): number {
  return calls
    .filter((call) => tenant === undefined || call.tenant === tenant)
    .reduce((sum, { cost }) => sum + cost, 0);
}

/** The units that other tenants used between a call and its arrival. */
export function unitsBefore(calls: readonly FairCall[], call: FairCall): number {
  return unitsOf(
    calls.filter(
      ({ tenant, arrivedMs }) =>
        tenant !== call.tenant && arrivedMs > call.calledAtMs && arrivedMs < call.arrivedMs,
    ),
  );
}

/** Windows of `windowMs` from `fromMs` to `toMs`, each `stepMs` later, with the calls that arrived in them. */
export function windowsOf(
  calls: readonly FairCall[],
  {
    fromMs,
    toMs,
    windowMs,
    stepMs,
  }: Readonly<Record<"fromMs" | "toMs" | "windowMs" | "stepMs", number>>,
): FairCall[][] {
  const windows: FairCall[][] = [];
  for (let atMs = fromMs; atMs + windowMs <= toMs; atMs += stepMs) {
    windows.push(calls.filter(({ arrivedMs }) => arrivedMs >= atMs && arrivedMs < atMs + windowMs));
  }
  return windows;
}
