import { once } from "node:events";
import process from "node:process";
import { endChild, startChild } from "../shared/child.ts";
import { WARM_UP, type Customer } from "./customers.ts";

/** The configuration that the downstream receives at its start. */
export interface ToDownstream {
  readonly maxPerSecond: number;
  /** The secrets for verification, by path. */
  readonly secrets: Readonly<Record<string, string>>;
  /** Calls to this path are answered like all others, but not reported. */
  readonly silentPath: string;
}

/** The path of a customer's endpoint. */
export function pathOf({ tenant }: Customer): string {
  return `/${tenant}`;
}

/** One call that the downstream received. */
export interface Call {
  /** On the downstream's clock. */
  readonly atMs: number;
  /** The tenant whose endpoint it is. */
  readonly customer: string;
  /** The id of the webhook. */
  readonly delivery: string;
  readonly worker: string;
  /** True if the official library of Standard Webhooks accepts its signature. */
  readonly isVerified: boolean;
  /** The status of the answer. */
  readonly status: number;
}

/** The calls since the previous report. */
export interface Report {
  readonly kind: "report";
  /** On the downstream's clock. */
  readonly nowMs: number;
  readonly calls: readonly Call[];
  /** The longest standstill of the downstream's process in the last second. */
  readonly stalledMs: number;
  readonly isLast: boolean;
}

export type FromDownstream = Report | { readonly kind: "listening"; readonly url: string };

export interface Downstream {
  readonly url: string;
  readonly pid: number;
  /** Resolves when the last call has been reported. */
  lastReport(): Promise<void>;
  end(): Promise<void>;
}

/**
 * Starts a downstream that verifies all calls, answers 503 to the first and 429 above `maxPerSecond`, and
 * reports its calls ten times a second.
 */
export async function startDownstream(
  maxPerSecond: number,
  customers: readonly Customer[],
  onReport: (report: Report) => void,
): Promise<Downstream> {
  const secrets = Object.fromEntries(
    [...customers, WARM_UP].map((customer) => [pathOf(customer), customer.secret]),
  );
  const settings: ToDownstream = { maxPerSecond, secrets, silentPath: pathOf(WARM_UP) };
  const args = [JSON.stringify(settings)];
  // About 8 s after the start, V8 shrinks the memory of an idle process; that blocked this one for 4 and 18 ms.
  const nodeArgs = ["--no-memory-reducer"];
  const child = startChild("examples/demo/downstream-process.ts", { args, nodeArgs });
  child.stderr?.pipe(process.stderr, { end: false });
  const last = new Promise<void>((resolve) => {
    child.on("message", (message: FromDownstream) => {
      if (message.kind !== "report") return;
      onReport(message);
      if (message.isLast) resolve();
    });
  });
  const died = once(child, "exit").then(() => {
    throw new Error("The demo's downstream ended unexpectedly.");
  });
  const [first] = (await Promise.race([once(child, "message"), died])) as [FromDownstream];
  died.catch(() => undefined);
  if (first.kind !== "listening") throw new Error("The demo's downstream did not start.");

  return {
    url: first.url,
    pid: child.pid!,
    async lastReport() {
      child.send("end");
      await Promise.race([last, died]);
    },
    end: () => endChild(child),
  };
}
