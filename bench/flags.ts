import { parseArgs } from "node:util";
import { COMPARED, type Compared } from "./limiters/contenders.ts";

const PARTS = [
  "caps",
  "everyday",
  "out-of-reach",
  "jobs",
  "memory",
  "limits",
  "levels",
  "tries",
  "keys",
  "backlog",
  "adaptive",
  "groups",
  "flows",
  "imports",
  "simulate",
  "metrics",
  "webhooks",
  "webhook-deaths",
  "outbox",
  "outbox-deaths",
  "service",
  "take",
  "gateway",
  "llm",
] as const;
export type Part = (typeof PARTS)[number];

/** How long and how often each part of the benchmark measures. */
interface Effort {
  /**
   * Measured seconds per run, of Sluice and then of a peer. Whole seconds, because some peers release calls once a
   * second.
   */
  readonly seconds: number;
  readonly peerSeconds: number;
  /** How many times job throughput is measured with and without Sluice, alternately. */
  readonly rounds: number;
  readonly throughputSeconds: number;
  /** How many times the CPU of a worker is measured with and without Sluice, alternately. */
  readonly cpuRounds: number;
  /** How many keys get one call each. */
  readonly keys: number;
  /** How many jobs wait in the long backlog. */
  readonly backlog: number;
  /** How many processes import each package. */
  readonly imports: number;
  /** How many calls each simulation makes. */
  readonly simulated: number;
  /** How many webhooks one sender delivers. */
  readonly deliveries: number;
  /** How many webhook endpoints are stored. */
  readonly endpoints: number;
  /** How many webhooks are sent while senders die. */
  readonly messages: number;
  /** How many rows of an outbox are moved, and while processes die. */
  readonly rows: number;
}

export interface Flags {
  readonly effort: Effort;
  readonly isQuick: boolean;
  readonly contenders: readonly Compared[];
  /** The caps to measure. Undefined means all. */
  readonly caps: readonly number[] | undefined;
  readonly parts: readonly Part[];
  readonly isWritten: boolean;
}

const FULL: Effort = {
  seconds: 10,
  peerSeconds: 6,
  rounds: 7,
  throughputSeconds: 5,
  cpuRounds: 3,
  keys: 1_000_000,
  backlog: 1_000_000,
  imports: 31,
  simulated: 200_000,
  deliveries: 5_000,
  endpoints: 100_000,
  messages: 100_000,
  rows: 100_000,
};
const QUICK: Effort = {
  seconds: 3,
  peerSeconds: 2,
  rounds: 3,
  throughputSeconds: 1,
  cpuRounds: 1,
  keys: 100_000,
  backlog: 100_000,
  imports: 9,
  simulated: 20_000,
  deliveries: 3_000,
  endpoints: 10_000,
  messages: 5_000,
  rows: 10_000,
};

/**
 * Reads the command line.
 *
 * @throws TypeError when a flag or a value is unknown.
 */
export function readFlags(args: readonly string[]): Flags {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: "boolean", default: false },
      write: { type: "boolean", default: false },
      only: { type: "string" },
      caps: { type: "string" },
      parts: { type: "string" },
    },
  });
  return {
    effort: values.quick ? QUICK : FULL,
    isQuick: values.quick,
    isWritten: values.write,
    contenders: pick("--only", COMPARED, values.only),
    caps: values.caps?.split(",").map(Number),
    parts: pick("--parts", PARTS, values.parts),
  };
}

/** Reads a list of names, in the order of `known`; undefined means all.
 *
 * @throws TypeError when a name is unknown.
 */
export function pick<Name extends string>(
  flag: string,
  known: readonly Name[],
  given: string | undefined,
): readonly Name[] {
  if (given === undefined) return known;
  const wanted = given.split(",");
  const unknown = wanted.find((name) => !known.some((each) => each === name));
  if (unknown === undefined) return known.filter((name) => wanted.includes(name));
  throw new TypeError(`${flag}: unknown "${unknown}"; there is ${known.join(", ")}`);
}
