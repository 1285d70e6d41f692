import { expect, it } from "vitest";
import { valueOf } from "../../support/metrics/exposition.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { ask, CALL, openServers, VIEW } from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = openServers();
const SCOPED = "a-token-for-one-bucket-of-this-test";

it("a server exports the metrics of all processes to tokens that may look at everything", async () => {
  const [service, own] = [sluices.open(), sluices.open()];
  await service.bucket("api", { rate: "100/s" }).draw();
  const { url } = await servers.open(own, {
    tokens: [
      { token: VIEW, role: "view" },
      { token: CALL, role: "call" },
      { token: SCOPED, role: "view", buckets: ["api"] },
    ],
  });

  await waitUntil(async () => {
    const { text } = await ask(`${url}/metrics`, { token: VIEW });
    return text.includes('sluice_bucket_waiting{bucket="api"');
  }, "the bucket is exported");

  const { status, headers, text } = await ask(`${url}/metrics`, { token: VIEW });
  expect(status).toBe(200);
  expect(headers["content-type"]).toBe("text/plain; version=0.0.4; charset=utf-8");
  const limit = { bucket: "api", limit: "100/s", source: "code" };
  expect(valueOf(text, "sluice_bucket_limit_per_second", limit)).toBe(100);
  expect(text).toContain("sluice_store_duration_seconds_count");
  for (const token of [undefined, CALL, SCOPED]) {
    const refused = await ask(`${url}/metrics`, token === undefined ? {} : { token });
    expect(refused.status).toBe(token === undefined ? 401 : 403);
    expect(refused.text).not.toContain("sluice_bucket");
  }
});
