import { expect, it } from "vitest";
import { createChildReports } from "../../../../src/queue/worker/held/child-reports.ts";
import { waitUntil } from "../../../support/async/wait-until.ts";

it("notifies the children of a job before it closes, also while it asks whether there are flows", async () => {
  const settled: string[] = [];
  let answer: ((isUsed: boolean) => void) | undefined;
  const reports = createChildReports({
    queue: "jobs",
    flows: {
      async settle(_queue, ids) {
        await new Promise((resolve) => setImmediate(resolve));
        settled.push(...ids);
      },
      check: async () => undefined,
    },
    isUsed: () => new Promise((resolve) => (answer = resolve)),
  });
  reports.note("17");
  await waitUntil(() => answer !== undefined, "it asks whether there are flows");

  const closing = reports.close();
  answer!(true);
  await closing;

  expect(settled).toEqual(["17"]);
});
