import { readFileSync, statSync, type BigIntStats } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { reasonOf } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { readRules, type Rules } from "./read.ts";

/** Rules, and when their file was changed, in ms since 1970. */
export interface DatedRules extends Rules {
  readonly changedAtMs: number;
}

/**
 * How often the file is looked at. Looking is certain where notices are not: on network disks, where editors replace the
 * file, and where Kubernetes swaps a link above it.
 */
const EVERY_MS = 250;

/** Rules, and what their file was before it was read. */
export interface ReadFile {
  readonly rules: DatedRules;
  readonly stamp: string;
}

/** @throws {@link InvalidOptionError} when the file is not there, or says anything that can never work. */
export function readRulesFile(file: string): ReadFile {
  try {
    const found = statSync(file, { bigint: true });
    const rules = readRules(file, readFileSync(file, "utf8"));
    return { rules: { ...rules, changedAtMs: changedAt(found) }, stamp: stampOf(found) };
  } catch (error) {
    if (error instanceof InvalidOptionError) throw error;
    const remedy = `the file cannot be read (${reasonOf(error)})`;
    const problem = { where: "createSluice()", option: "rules", value: file, remedy };
    throw new InvalidOptionError({ ...problem, cause: error });
  }
}

export interface Watch {
  close(): void;
}

/** Calls back with what the file says now when that can be used; the log hears of all else, once for each change. */
export function watchRulesFile(
  first: ReadFile,
  { logger, onChange }: { readonly logger: Logger; readonly onChange: (rules: DatedRules) => void },
): Watch {
  const { file } = first.rules;
  let { changedAtMs } = first.rules;
  let read: string | undefined = first.stamp;
  let seen: string | undefined = read;
  let timer = wait();
  let isClosed = false;

  function wait(): NodeJS.Timeout {
    // A look at a file keeps no process alive.
    return setTimeout(
      () => void look().finally(() => isClosed || (timer = wait())),
      EVERY_MS,
    ).unref();
  }

  async function look(): Promise<void> {
    const found = await stat(file, { bigint: true }).catch(() => undefined);
    const stamp = found && stampOf(found);
    // Who writes it may not be done: it is read when it has been the same for two looks.
    const isSettled = stamp === seen;
    seen = stamp;
    if (stamp === read || !isSettled) return;
    read = stamp;
    try {
      const text = await readFile(file, "utf8");
      const after = await stat(file, { bigint: true });
      if (stampOf(after) !== stamp) read = undefined;
      else {
        const rules = readRules(file, text);
        // What took its place is newer, also if it was copied with an old time, or within one tick of the disk's clock.
        changedAtMs = Math.max(changedAt(after), changedAtMs + 1);
        onChange({ ...rules, changedAtMs });
      }
    } catch (error) {
      tell(error);
    }
  }

  function tell(error: unknown): void {
    if (error instanceof InvalidOptionError) {
      const { message: reason } = error;
      logger.error({ file, reason }, `The rules stay as they were: ${reason}`);
      return;
    }
    const reason = reasonOf(error);
    logger.warn(
      { file, reason },
      `The rules file cannot be read (${reason}); the rules stay as they were.`,
    );
  }

  return {
    close() {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}

/** Another file, another time or another length. */
function stampOf({ dev, ino, mtimeNs, ctimeNs, size }: BigIntStats): string {
  return `${dev}:${ino}:${mtimeNs}:${ctimeNs}:${size}`;
}

function changedAt({ mtimeMs }: BigIntStats): number {
  return Math.max(0, Number(mtimeMs));
}
