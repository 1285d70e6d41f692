import { readFileSync } from "node:fs";
import fc from "fast-check";
import { expect } from "vitest";
import { InvalidOptionError, SluiceError, type Logger } from "sluice";
import { OwnError } from "./hostile.ts";

const DOCUMENTED = new Set(
  readFileSync(new URL("../../../docs/reference/errors.md", import.meta.url), "utf8").match(
    /ERR_[A-Z_]+/g,
  ),
);
const PROTOTYPES = [Object.prototype, Array.prototype, Function.prototype].map((prototype) => ({
  prototype,
  names: Reflect.ownKeys(prototype).length,
}));
/** Whatever takes so long hangs. */
const HANGS_MS = 30_000;

export const SILENT: Logger = { warn: () => {}, error: () => {} };

/** What came of an act: it worked, or was refused by an error that the docs promise. Anything else fails. */
export async function outcomeOf<T>(
  act: () => T,
): Promise<{ readonly worked: true; readonly value: Awaited<T> } | { readonly worked: false }> {
  try {
    return { worked: true, value: await act() };
  } catch (error) {
    if (!(error instanceof OwnError)) assertDocumented(error);
    return { worked: false };
  } finally {
    assertUnpolluted();
  }
}

function assertDocumented(error: unknown): void {
  if (!(error instanceof SluiceError)) throw error;
  expect(DOCUMENTED).toContain(error.code);
  expect(error.name).toBe(error.constructor.name);
  if (!(error instanceof InvalidOptionError)) return;
  // One line, whatever was given, and no longer than somebody reads.
  expect(error.message).toMatch(/^.*: option .* is .*; .+[.?]$/);
  expect(error.message.length).toBeLessThan(2_000);
  expect(error.option).toBeTypeOf("string");
  expect(error).toHaveProperty("value");
}

/** Nothing of what everybody inherits has changed. */
export function assertUnpolluted(): void {
  expect(({} as { polluted?: unknown }).polluted).toBe(undefined);
  for (const { prototype, names } of PROTOTYPES) {
    expect(Reflect.ownKeys(prototype)).toHaveLength(names);
  }
}

/** So many cases, one after another; fast-check prints the seed of a failing one. Unhandled rejections fail the run. */
export function forAll<T>(
  numRuns: number,
  arbitrary: fc.Arbitrary<T>,
  holds: (value: T) => Promise<void>,
): Promise<void> {
  return fc.assert(fc.asyncProperty(arbitrary, holds), { numRuns, timeout: HANGS_MS });
}
