import process from "node:process";
import { removeKeys } from "./cleanup.ts";

/** The prefix under which an example stores its state, apart from other users of the same Redis. */
export interface OwnPrefix {
  readonly prefix: string;
  /** Removes everything that the example has stored. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * The prefix of an example, which all its processes share. With `$SLUICE_PREFIX`, the example uses that and removes
 * nothing.
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

/** Ends an example in order at the first SIGINT or SIGTERM. */
export function onStop(close: () => Promise<void>): void {
  let closing: Promise<void> | undefined;
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      // The terminal and npm both pass Ctrl-C on.
      closing ??= close().then(() => process.exit(0));
    });
  }
}
