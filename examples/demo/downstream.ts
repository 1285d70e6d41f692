import { once } from "node:events";
import process from "node:process";
import { endChild, startChild } from "../shared/child.ts";
import { WARM_UP, type Customer } from "./customers.ts";

/** The configuration that the downstream receives at its start. */
export interface ToDownstream {
  readonly maxPerSecond: number;
  /** The secrets that verify webhooks, by path. */
  readonly secrets: Readonly<Record<string, string>>;
  /** Calls to this path get a normal response, but are not reported. */
  readonly silentPath: string;
}

/** The path of a customer's endpoint. */
export function pathOf({ tenant }: Customer): string {
  return `/${tenant}`;
}

/** One call that the downstream received. */
export interface Call {
  /** The time of the call in ms, on the downstream's clock. */
  readonly atMs: number;
  /** The tenant to whose endpoint the call was sent. */
  readonly customer: string;
  /** The id of the webhook. */
  readonly delivery: string;
  readonly worker: string;
  /** True if the official library of Standard Webhooks accepts the call's signature. */
  readonly isVerified: boolean;
  /** The HTTP status of the response. */
  readonly status: number;
}

/** The calls since the previous report. */
export interface Report {
  readonly kind: "report";
  /** The time of the report in ms, on the downstream's clock. */
  readonly nowMs: number;
  readonly calls: readonly Call[];
  /** The longest time in the last second for which the downstream's process was blocked. */
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
 * Starts a downstream that verifies all calls. It answers 503 to the first call and 429 to calls above
 * `maxPerSecond`, and reports its calls ten times a second.
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
  // Without this flag, V8 shrinks the memory of an idle process about 8 s after its start. That blocked the
  // downstream for 4 and 18 ms.
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
