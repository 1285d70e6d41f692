import * as z from "zod";
import { KEY, readOptions } from "../core/options.ts";

/** Names one key; without it, the whole queue is meant. */
export interface OfKey {
  /** The tenant, account or endpoint that the jobs are for. */
  readonly key?: string | undefined;
}

const OF_KEY = z.strictObject({ key: KEY.optional() });

/** @throws {@link InvalidOptionError} when it is no key, or there is another option. */
export function readOfKey(where: string, given: unknown): OfKey {
  return readOptions(where, OF_KEY, given);
}
