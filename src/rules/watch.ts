import { readFileSync, statSync, type BigIntStats } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { reasonOf } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { readRules, type Rules } from "./read.ts";

/** Rules, with the modification time of their file in ms since 1970. */
export interface DatedRules extends Rules {
  readonly changedAtMs: number;
}

/**
 * How often the rules file is checked, in ms. Polling also works where file notifications fail: on
 * network disks, with editors that replace the file, and where Kubernetes changes a symlink to a
 * parent directory.
 */
const EVERY_MS = 250;

/** Rules, with a stamp that identifies the state of their file before it was read. */
export interface ReadFile {
  readonly rules: DatedRules;
  readonly stamp: string;
}

/**
 * Reads the rules file at start.
 *
 * @throws {@link InvalidOptionError} when the file does not exist, or when it contains anything
 * that can never work.
 */
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

/**
 * Watches a rules file, and calls `onChange` with each valid new content. Logs invalid and
 * unreadable files once for each change.
 */
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
    // The timer must not keep the process alive.
    return setTimeout(
      () => void look().finally(() => isClosed || (timer = wait())),
      EVERY_MS,
    ).unref();
  }

  async function look(): Promise<void> {
    const found = await stat(file, { bigint: true }).catch(() => undefined);
    const stamp = found && stampOf(found);
    // The writer of the file may not have finished. The file is read only after two checks in a row
    // found the same state.
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
        // The new content must count as newer, even if the file has an old modification time, or
        // changed twice within one tick of the disk's clock.
        changedAtMs = Math.max(changedAt(after), changedAtMs + 1);
        onChange({ ...rules, changedAtMs });
      }
    } catch (error) {
      logFailure(error);
    }
  }

  function logFailure(error: unknown): void {
    if (error instanceof InvalidOptionError) {
      const { message: reason } = error;
      logger.error(
        { file, reason },
        `The rules file has an error, and the previous rules stay in force: ${reason}`,
      );
      return;
    }
    const reason = reasonOf(error);
    logger.warn(
      { file, reason },
      `The rules file cannot be read (${reason}); the previous rules stay in force.`,
    );
  }

  return {
    close() {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}

/** Returns a text that changes with the file's identity, times or size. */
function stampOf({ dev, ino, mtimeNs, ctimeNs, size }: BigIntStats): string {
  return `${dev}:${ino}:${mtimeNs}:${ctimeNs}:${size}`;
}

function changedAt({ mtimeMs }: BigIntStats): number {
  return Math.max(0, Number(mtimeMs));
}
