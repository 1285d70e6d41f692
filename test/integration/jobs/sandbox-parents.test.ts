import { beforeEach, expect, it, onTestFinished } from "vitest";
import { CodecError, type Job } from "sluice";
import { createJobContext, type JobContext } from "../../../src/queue/worker/context.ts";
import type { ParentOutcome } from "../../../src/queue/manage/flows.ts";
import { openHandler } from "../../../src/queue/worker/handlers/open-handler.ts";
import { useBuiltSandbox } from "../../support/children/built-sandbox.ts";
import { deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { SILENT } from "../../support/webhooks/open-hooks.ts";

const HANDLER = new URL("../../support/handlers/many-ways.mjs", import.meta.url);
const SLOT = { bucket: "downstream", atMs: 0, waitedMs: 0, generation: 1, hasLease: false };

beforeEach(useBuiltSandbox);

/** Runs one job in a child process; `parents` are read as a worker reads them. */
async function openFile(parents: () => Promise<readonly ParentOutcome[]>) {
  const opened = openHandler<object, unknown>(HANDLER, {
    processes: 1,
    logger: SILENT,
    failOnResponse: true,
  });
  onTestFinished(() => opened.close());
  await opened.ready();
  const context = createJobContext({ jobId: "1", token: "t", attempt: 1 });
  context.readParents = parents;
  context.begin({} as never, SLOT as never, {} as never);
  const run = async (way: string): Promise<unknown> =>
    opened.handle({ id: "1", data: { do: way } } as Job<object>, context as JobContext);
  return { run, context };
}

it("a job that is aborted while its parents are read does not start in its process", async () => {
  const reading = deferred();
  const { run, context } = await openFile(() => reading.promise.then(() => []));
  const leaseLost = new Error("the lease is lost");

  const running = run("echo");
  context.abort(leaseLost);
  reading.resolve();

  expect(await rejectionOf(running)).toBe(leaseLost);
});

it("parents that cannot be read fail only a handler that asks for them", async () => {
  const facts = { queue: "jobs", kind: "result", action: "decode", codec: "v1", id: "0" } as const;
  const { run } = await openFile(() => Promise.reject(new CodecError(facts, "no such codec.")));

  expect(await run("pid")).toBeTypeOf("number");
  const failure = await rejectionOf(run("parents"));

  expect(failure).toMatchObject({ name: "CodecError", code: "ERR_CODEC" });
  expect((failure as Error).message).toMatch(/^The result of job 0/);
});
