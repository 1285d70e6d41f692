import { expect, it } from "vitest";
import type { AddedJob, JobMet } from "../../../src/stores/redis/scripts/queue/jobs.ts";
import { jobScripts } from "../../../src/stores/redis/scripts/queue/jobs.ts";
import { runScript } from "../../../src/stores/redis/scripts/script.ts";
import { lanesByHand } from "../../support/jobs/lanes-by-hand.ts";

const byHand = lanesByHand();

function jobOf(id: string, json: string): AddedJob {
  const times = { timestamp: Date.now(), delay: 0, priority: 3 };
  const own = { isParked: false, weights: undefined, dedupe: undefined, keep: undefined };
  return { id, name: "job", json, opts: "{}", ...times, ...own };
}

async function add(jobs: readonly AddedJob[]): Promise<readonly JobMet[]> {
  const { redis, keyOf } = byHand;
  const [prefix = ""] = keyOf("").split(":");
  const request = { prefix, queue: "jobs", jobs, most: undefined };
  return (await runScript(redis, jobScripts.addJobs, request)) as readonly JobMet[];
}

it("jobs-add returns stored jobs in one reply while they are small", async () => {
  const ids = Array.from({ length: 12 }, (_, index) => `large-${index}`);
  const data = JSON.stringify("x".repeat(900_000));
  for (const id of ids) await add([jobOf(id, data)]);

  const met = await add([...ids.map((id) => jobOf(id, "1")), jobOf("new", "2")]);

  const sizes = met.map(({ fields }) => fields?.join("").length);
  expect(met.map(({ isNew }) => isNew)).toEqual([...ids.map(() => false), true]);
  expect(sizes.slice(0, 5).every((size) => size! > data.length)).toBe(true);
  expect(sizes.slice(5)).toEqual([...ids.slice(5).map(() => undefined), 0]);
});
