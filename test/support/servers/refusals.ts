import { expect, it } from "vitest";
import type { Answer } from "../../../src/core/answer.ts";
import { interpret } from "../../../src/throttle/feedback/answer.ts";

/** The present, to all that is heard here. */
export const HEARD_AT_MS = Date.UTC(2026, 10, 21, 12, 0, 0);

/** A refusal in a downstream's words, and what the answer is to be. */
export type Row = readonly [symptom: string, given: unknown, expected: Partial<Answer>];

export function thrown(properties: object, message = "the call failed"): Error {
  return Object.assign(new Error(message), properties);
}

/** As axios throws it, whose message ends with the status. */
export function refusal(status: number, headers: object = {}, data: unknown = ""): Error {
  const response = { status, headers, data };
  return thrown({ response }, `Request failed with status code ${status}`);
}

export function google(status: number, error: object): Error {
  return refusal(status, {}, { error: { code: status, ...error } });
}

export function itReads(rows: readonly Row[]): void {
  it.each(rows)("reads %s", (_symptom, given, expected) => {
    expect(interpret(given, HEARD_AT_MS).answer).toMatchObject({ refused: true, ...expected });
  });
}
