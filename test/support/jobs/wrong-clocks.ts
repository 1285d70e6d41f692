import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe } from "vitest";
import { children } from "../children/child.ts";
import { startMember, type MemberOptions, type QueueMember } from "./queue-members.ts";

const HOURS_MS = 3 * 3_600_000;

/** How wrong the wall clocks of a producer and of a worker are; Redis' own is right. */
const WRONG_CLOCKS: readonly { readonly producerMs: number; readonly workerMs: number }[] = [
  { producerMs: -8_000, workerMs: 0 },
  { producerMs: HOURS_MS, workerMs: -HOURS_MS },
  { producerMs: -HOURS_MS, workerMs: HOURS_MS },
];

/** A producer and a worker, each in a process of its own that lasts for all tests. */
export interface WrongClocks {
  readonly producer: QueueMember;
  readonly worker: QueueMember;
}

/** The same tests for processes with wrong clocks, whichever way. */
export function withWrongClocks(
  define: (members: WrongClocks) => void,
  {
    worker = {},
    doAllWork = false,
    ...given
  }: Omit<MemberOptions, "prefix" | "shiftMs"> & {
    /** Whether the producer has a worker, too. */
    readonly doAllWork?: boolean;
  } = {},
): void {
  describe.each(WRONG_CLOCKS)(
    "a producer's clock off by $producerMs ms, a worker's by $workerMs ms",
    ({ producerMs, workerMs }) => {
      const processes = children(afterAll);
      const members = {} as { -readonly [Name in keyof WrongClocks]: WrongClocks[Name] };
      beforeAll(async () => {
        const prefix = `t${randomUUID()}`;
        const options = { ...given, prefix };
        [members.producer, members.worker] = await Promise.all([
          startMember(processes, {
            ...options,
            shiftMs: producerMs,
            ...(doAllWork && { worker }),
          }),
          startMember(processes, { ...options, shiftMs: workerMs, worker }),
        ]);
      });
      define(members);
    },
  );
}

/** The attempts at one job, by the name in its data. */
export function attemptsAt(name: string, { attempts }: QueueMember): QueueMember["attempts"] {
  return attempts.filter((attempt) => attempt.name === name);
}
