import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";
import type { Logger } from "sluice";

export interface RulesFiles {
  /** The folder of the test. */
  folder(): string;
  /** Writes a file as editors do: beside the old one, and then in its place. */
  write(name: string, text: string): string;
}

/** Files of one test; they are removed after it. */
export function rulesFiles(): RulesFiles {
  let made: string | undefined;
  afterEach(() => {
    if (made !== undefined) rmSync(made, { recursive: true });
    made = undefined;
  });
  const folder = (): string => (made ??= mkdtempSync(join(tmpdir(), "rules-")));
  return {
    folder,
    write(name, text) {
      const file = join(folder(), name);
      writeFileSync(`${file}.new`, text);
      renameSync(`${file}.new`, file);
      return file;
    },
  };
}

export interface HeardLog {
  readonly logger: Logger;
  readonly lines: string[];
}

/** A logger that keeps what it is told. */
export function heardLog(): HeardLog {
  const lines: string[] = [];
  const keep = (_facts: object, message: string): void => void lines.push(message);
  return { logger: { warn: keep, error: keep }, lines };
}
