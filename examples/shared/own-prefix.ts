import process from "node:process";
import { removeKeys } from "./cleanup.ts";

/** The prefix under which an example stores its state, separate from other users of the same Redis. */
export interface OwnPrefix {
  readonly prefix: string;
  /** Removes everything that the example has stored. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Returns a prefix that all processes of an example share. If `$SLUICE_PREFIX` is set, returns that prefix and
 * removes nothing at the end.
 */
export function ownPrefix(example: string): OwnPrefix {
  const url = process.env["REDIS_URL"];
  const shared = process.env["SLUICE_PREFIX"];
  const prefix = shared ?? `sluice-example-${example}`;
  return {
    prefix,
    async [Symbol.asyncDispose]() {
      if (url && shared === undefined) await removeKeys(url, prefix);
    },
  };
}

/** Closes an example cleanly at the first SIGINT or SIGTERM. */
export function onStop(close: () => Promise<void>): void {
  let closing: Promise<void> | undefined;
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      // Closes only once, because the terminal and npm both forward Ctrl-C.
      closing ??= close().then(() => process.exit(0));
    });
  }
}
