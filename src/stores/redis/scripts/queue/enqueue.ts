import type { AddRequest, Heard, JobMet, NoPlace } from "../../../../core/stores/queue/store.ts";
import { baseOf, type QueueName } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";

export interface JobsAdd extends QueueName, AddRequest {}

const ADDED_TO = [
  "wait",
  "delayed",
  "events",
  "meta",
  "marker",
  "prioritized",
  "active",
  "pc",
  "id",
] as const;

export const jobsAdd: Script<JobsAdd, readonly JobMet[] | NoPlace> = defineScript({
  name: "queue/enqueue/jobs-add",
  bringsJobs: true,
  keys: (input) => ADDED_TO.map((name) => baseOf(input) + name),
  args: (input) => {
    const { jobs, most } = input;
    const heads = jobs.map(({ json: _json, ...head }) => head);
    return [baseOf(input), JSON.stringify({ most, jobs: heads }), ...jobs.map(({ json }) => json)];
  },
  decode: (reply, { jobs }) => {
    const met = reply as readonly unknown[];
    if (typeof met[0] === "number") {
      const [waiting, limit, key] = met;
      return { waiting, limit: Number(limit), key: key === "" ? undefined : String(key) };
    }
    return jobs.map((_job, index) => ({
      id: String(met[3 * index]),
      isNew: Number(met[3 * index + 1]) === 1,
      fields: fieldsOf(met[3 * index + 2]),
    }));
  },
});

function fieldsOf(reply: unknown): readonly string[] | undefined {
  return Array.isArray(reply) ? (reply as string[]) : undefined;
}

/** The job that has a dedupeId; the hash of one that runs and of one that follows it. */
export function dedupeKeys(name: QueueName, dedupeId: string): readonly [string, string] {
  const base = baseOf(name);
  return [`${base}de:${dedupeId}`, `${base}again:${dedupeId}`];
}

export interface JobsFollow extends QueueName {
  readonly id: string;
  readonly dedupeId: string;
}

export const jobsFollow: Script<JobsFollow, void> = defineScript({
  name: "queue/enqueue/jobs-follow",
  keys: (input) => {
    const base = baseOf(input);
    return [`${base}delayed`, `${base}marker`, dedupeKeys(input, input.dedupeId)[1]];
  },
  args: (input) => [baseOf(input), input.id],
  decode: () => undefined,
});

const HEARD: readonly Heard[] = ["taken", "woken", "waiting"];

export const jobsHeard: Script<QueueName & { readonly id: string }, Heard> = defineScript({
  name: "queue/enqueue/jobs-heard",
  keys: (input) =>
    [input.id, `${input.id}:lock`, "delayed", "marker", "meta"].map((key) => baseOf(input) + key),
  args: (input) => [baseOf(input), input.id],
  decode: (reply) => HEARD[Number(reply)]!,
});
