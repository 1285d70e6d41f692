import { randomUUID } from "node:crypto";
import { mkdir, open, opendir, readFile, rename, rm, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { readOptional, wholeNumber } from "../../core/input/options.ts";
import type { PayloadStore } from "./offload.ts";

/** The options of `fileStore()`. */
export interface FileStoreOptions {
  /**
   * How long a file is kept after it was last written or read, in ms. Must be longer than a job can wait, and than dead
   * letters are to be replayed. Defaults to 2,592,000,000 (30 days).
   */
  readonly keepMs?: number | undefined;
}

const HOUR_MS = 3_600_000;
const OPTIONS = z.strictObject({
  keepMs: wholeNumber(HOUR_MS, 3_650 * 24 * HOUR_MS, "milliseconds").optional(),
});
const WHERE = "fileStore()";
/** A reference: the first two characters are the subfolder. No other text can name a file. */
const REFERENCE = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
/** How often a process that writes files looks for expired ones. */
const SWEEP_MS = HOUR_MS;

/**
 * Stores payloads as files in a folder, which all processes have to share. Each file is complete or does not exist,
 * also after a crash. A process that writes files removes expired ones, at most once an hour.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export function fileStore(folder: string, options?: FileStoreOptions): PayloadStore {
  if (typeof folder !== "string" || folder === "") {
    const remedy = "give the path of a folder that all processes share";
    throw new InvalidOptionError({ where: WHERE, option: "folder", value: folder, remedy });
  }
  const { keepMs = 720 * HOUR_MS } = readOptional(WHERE, OPTIONS, options);
  let sweptAtMs = -Infinity;

  function pathOf(reference: string): string {
    return join(folder, reference.slice(0, 2), reference);
  }

  /** Removes expired files. Never rejects, because a payload must not fail for that. */
  async function sweep(): Promise<void> {
    sweptAtMs = performance.now();
    const oldestMs = Date.now() - keepMs;
    for (let number = 0; number < 256; number++) {
      const subfolder = number.toString(16).padStart(2, "0");
      // A subfolder that does not exist or cannot be read is skipped.
      await sweepFolder(subfolder, oldestMs).catch(() => undefined);
    }
  }

  async function sweepFolder(subfolder: string, oldestMs: number): Promise<void> {
    for await (const { name } of await opendir(join(folder, subfolder))) {
      const reference = name.replace(/\.new$/, "");
      // The folder may contain files of others, which stay.
      if (!REFERENCE.test(reference) || !reference.startsWith(subfolder)) continue;
      const path = join(folder, subfolder, name);
      if ((await stat(path)).mtimeMs < oldestMs) await rm(path, { force: true });
    }
  }

  return {
    keepMs,
    async put(bytes) {
      const reference = randomUUID();
      const path = pathOf(reference);
      await mkdir(join(folder, reference.slice(0, 2)), { recursive: true });
      // Only the owner may read the file, because it may contain data of customers.
      const file = await open(`${path}.new`, "wx", 0o600);
      try {
        await file.writeFile(bytes);
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(`${path}.new`, path);
      if (performance.now() - sweptAtMs > SWEEP_MS) void sweep();
      return reference;
    },
    async get(reference) {
      if (!REFERENCE.test(reference)) throw new Error("the reference is not one of a file store");
      const path = pathOf(reference);
      try {
        const bytes = await readFile(path);
        const now = new Date();
        await utimes(path, now, now).catch(() => undefined);
        return bytes;
      } catch (cause) {
        if ((cause as NodeJS.ErrnoException).code !== "ENOENT") throw cause;
        throw new Error(
          `the file ${reference} does not exist. It has expired after ${keepMs} ms, or this process has another folder`,
        );
      }
    },
  };
}
