import { expect, it } from "vitest";
import { createWebhooks } from "sluice/webhooks";
import { valueOf } from "../../support/metrics/exposition.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { LOCAL, put, SILENT, startReceiver, untilIdle } from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();

it("webhook attempts are timed by their result", async () => {
  const sluice = sluices.open({ logger: SILENT });
  const metrics = await sluice.metrics();
  const hooks = createWebhooks(sluice, LOCAL);
  let answers = 0;
  const receiver = await startReceiver({ answer: () => ((answers += 1) === 1 ? 500 : 200) });
  await put(hooks, { tenant: "acme", id: "a", url: receiver.url, scheduleMs: [0, 1] });
  hooks.worker();

  await hooks.send({ tenant: "acme", type: "note.made", data: 1 });

  await waitUntil(() => receiver.arrivals.length === 2, "it came twice");
  await untilIdle(hooks);
  const text = await metrics.text();
  const count = (outcome: string) =>
    valueOf(text, "sluice_webhook_attempt_seconds_count", { outcome });
  expect(count("success")).toBe(1);
  expect(text.match(/^sluice_webhook_attempt_seconds_count\{/gm)).toHaveLength(2);
  const sent = { bucket: "webhooks", outcome: "granted" };
  expect(valueOf(text, "sluice_bucket_slots_total", sent)).toBe(2);
});
