import { createHash } from "node:crypto";
import * as z from "zod";
import type { Codec, PayloadInfo } from "../../core/codec.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { LONGEST_MS, readOptions, wholeNumber } from "../../core/input/options.ts";

/** Stores payloads outside of Redis. */
export interface PayloadStore {
  /**
   * Stores bytes, and returns the reference by which `get` finds them: up to 2,000 characters. The signal is aborted
   * when the time limit of `offload()` is over.
   */
  put(bytes: Uint8Array, about: PayloadInfo & { readonly signal: AbortSignal }): Promise<string>;
  /** Returns the bytes of a reference. Throws if they do not exist. */
  get(reference: string, about: { readonly signal: AbortSignal }): Promise<Uint8Array>;
  /** How long the store keeps payloads, in ms. Undefined if it keeps them without a limit. */
  readonly keepMs?: number | undefined;
}

/** The options of `offload()`. */
export interface OffloadOptions {
  /** Where the payloads are stored, such as `fileStore(folder)`. All processes need the same store. */
  readonly store: PayloadStore;
  /** Payloads with more bytes than this are stored there. Defaults to 100,000. */
  readonly aboveBytes?: number | undefined;
  /** The time limit of one request to the store, in ms. Defaults to 30,000. */
  readonly timeoutMs?: number | undefined;
}

const OPTIONS = z.strictObject({
  store: z.custom<PayloadStore>(isStore, {
    error: "give a store with the functions put and get, such as fileStore(folder)",
  }),
  aboveBytes: wholeNumber(0, 512_000_000, "bytes").optional(),
  timeoutMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
});
const LONGEST_REFERENCE = 2_000;

function isStore(value: unknown): boolean {
  const { put, get } = (value ?? {}) as Partial<PayloadStore>;
  return typeof put === "function" && typeof get === "function";
}

/**
 * Stores large payloads elsewhere. Redis then stores a reference and a checksum. Put it last, so that the store gets
 * compressed and encrypted bytes. The data of recurring jobs always stays in Redis, because all runs share it.
 *
 * Sluice does not delete payloads from the store. The store expires them by its own rule, so it has to keep them for
 * longer than any job waits or is kept.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export function offload(options: OffloadOptions): Codec {
  const read = readOptions("offload()", OPTIONS, options);
  const { store, aboveBytes = 100_000, timeoutMs = 30_000 } = read;
  return {
    name: "offload",
    async encode(bytes, { queue, kind, dueInMs, isShared }) {
      if (bytes.length <= aboveBytes || isShared) return undefined;
      if (store.keepMs !== undefined && dueInMs >= store.keepMs) {
        const remedy = `the store keeps payloads for ${store.keepMs} ms only; start the job earlier, or raise the store's keepMs`;
        throw new InvalidOptionError({
          where: "offload()",
          option: "delayMs",
          value: dueInMs,
          remedy,
        });
      }
      const reference = await inTime(timeoutMs, (signal) =>
        store.put(bytes, { queue, kind, signal }),
      );
      if (typeof reference !== "string" || reference.length > LONGEST_REFERENCE) {
        throw new Error(`the store returned no reference of up to ${LONGEST_REFERENCE} characters`);
      }
      return { bytes: Buffer.from(reference), version: checksumOf(bytes) };
    },
    async decode(bytes, { version }) {
      const reference = Buffer.from(bytes).toString("utf8");
      const found = await inTime(timeoutMs, (signal) => store.get(reference, { signal }));
      if (checksumOf(found) === version) return found;
      throw new Error("the store returned other bytes than those that were stored");
    },
  };
}

function checksumOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("base64url");
}

/** Runs a request to the store, and rejects when its time limit is over. */
async function inTime<Reply>(
  timeoutMs: number,
  request: (signal: AbortSignal) => Promise<Reply>,
): Promise<Reply> {
  const controller = new AbortController();
  const late = new Error(`the store did not reply within ${timeoutMs} ms`);
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      controller.abort(late);
      reject(late);
    }, timeoutMs);
  });
  try {
    return await Promise.race([request(controller.signal), limit]);
  } finally {
    clearTimeout(timer);
  }
}
