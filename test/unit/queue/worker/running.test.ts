import { expect, it } from "vitest";
import { JobLostError } from "../../../../src/queue/errors.ts";
import { createRunning } from "../../../../src/queue/worker/context.ts";

it("notifies the handler of the job that is lost, and no other", () => {
  const running = createRunning();
  const [a, b] = [
    running.add({ jobId: "a", token: "t", attempt: 1 }),
    running.add({ jobId: "b", token: "t", attempt: 1 }),
  ];

  a.lose("its lock was lost");

  expect(a.signal.reason).toBeInstanceOf(JobLostError);
  expect(a.signal.reason).toMatchObject({ code: "ERR_JOB_LOST", jobId: "a" });
  expect(a.signal.reason.message).toContain("its lock was lost");
  expect(b.signal.aborted).toBe(false);
});

it("notifies all handlers, each about its own job", () => {
  const running = createRunning();
  const contexts = [
    running.add({ jobId: "a", token: "t", attempt: 1 }),
    running.add({ jobId: "b", token: "t", attempt: 2 }),
  ];

  running.lose("the worker is closed");

  expect(contexts.map(({ signal }) => signal.reason.jobId)).toEqual(["a", "b"]);
});

it("counts a job twice that is here twice after it lost its lock", async () => {
  const running = createRunning();
  const first = running.add({ jobId: "a", token: "t", attempt: 1 });
  const second = running.add({ jobId: "a", token: "t", attempt: 2 });
  running.endWithin(60_000);
  const ended = running.untilNone();

  running.end(second);
  expect(running.count).toBe(1);
  running.end(first);

  expect(await ended).toBe(true);
  expect(running.count).toBe(0);
});

it("waits until the earliest of the given deadlines", async () => {
  const running = createRunning();
  running.add({ jobId: "a", token: "t", attempt: 1 });

  running.endWithin(2 ** 31 - 1);
  const ended = running.untilNone();
  running.endWithin(1);
  running.endWithin(2 ** 31 - 1);

  expect(await ended).toBe(false);
});

it("does not wait for the remaining jobs after the deadline", async () => {
  const running = createRunning();
  running.add({ jobId: "a", token: "t", attempt: 1 });

  running.endWithin(0);

  expect(await running.untilNone()).toBe(false);
});

it("lists the jobs that have not begun, in order of arrival", () => {
  const running = createRunning();
  const [a, b, c] = ["a", "b", "c"].map((id) => running.add({ jobId: id, token: "t", attempt: 1 }));

  running.started(b!);
  running.started(b!);

  expect([...running.waiting()]).toEqual([a, c]);
  expect(running.unbegun).toBe(2);
  for (const context of [a, b, c]) running.end(context!);
  expect(running.unbegun).toBe(0);
});

it("ends the waits of all waiting jobs", () => {
  const running = createRunning();
  const left: unknown[] = [];
  const [a, b] = [
    running.add({ jobId: "a", token: "t", attempt: 1 }),
    running.add({ jobId: "b", token: "t", attempt: 1 }),
  ];
  const wait = { cancel: (reason: unknown) => void left.push(reason) };
  for (const context of [a, b]) context.add(wait);

  b.delete(wait);
  running.leave("the worker is closed");

  expect(left).toEqual(["the worker is closed"]);
});
