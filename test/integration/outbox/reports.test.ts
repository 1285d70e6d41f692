import { expect, it } from "vitest";
import { fleetMetrics } from "sluice/metrics";
import { openOutbox } from "../../support/postgres/open-outbox.ts";
import { postgresForFile } from "../../support/postgres/local-postgres.ts";
import { openBoards } from "../../support/server/boards.ts";
import { ask, openServers } from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { valueOf } from "../../support/metrics/exposition.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const postgres = postgresForFile();
const sluices = realSluices();
const servers = openServers();
const boards = openBoards();

it("relays report the rows of their outbox to all processes, and count the moved rows once", async () => {
  const opened = await openOutbox(sluices, postgres.url, { queue: { maxBacklog: 3 } });
  const { outbox, jobs, commit, table } = opened;
  const operator = sluices.open();
  const reported = async () => (await operator.overview()).outboxes[0];
  const [first, second] = [outbox.startRelay(), outbox.startRelay()];

  await waitUntil(async () => (await reported()) !== undefined, "an empty outbox is reported");
  const empty = (await reported())!;
  for (const data of [1, 2, 3, 4, 5]) await commit((client) => outbox.enqueue(client, jobs, data));
  // The queue has room for three jobs.
  await waitUntil(async () => (await reported())!.pending === 2, "two rows are reported");
  await Promise.all([first.close(), second.close()]);

  const { outbox: id, name, pending, failed, moved, oldestMs, reportedAgoMs } = (await reported())!;
  expect(empty).toMatchObject({ outbox: id, pending: 0, failed: 0, moved: 0, oldestMs: 0 });
  expect({ name, pending, failed, moved }).toEqual({
    name: `public.${table}`,
    pending: 2,
    failed: 0,
    moved: 3,
  });
  expect(oldestMs).toBeGreaterThan(reportedAgoMs);
  await waitUntil(async () => (await reported())!.oldestMs > oldestMs, "it ages without a relay");
});

it("shows an outbox in the metrics, over HTTP and on the board", async () => {
  const { sluice, outbox, jobs, commit, table } = await openOutbox(sluices, postgres.url);
  await commit((client) => outbox.enqueue(client, jobs, 1));
  await outbox.startRelay().close();
  outbox.startRelay({ maxAttempts: 1 });
  await commit((client) =>
    client.query(`INSERT INTO ${table} (target, data) VALUES ('unknown', '1')`),
  );
  const { url } = await servers.open(sluices.open(), { insecureLocal: true });
  const shown = async () =>
    (await ask(`${url}/api/v1/outboxes`, {})).json as { outboxes: object[] };
  const isShown = async (): Promise<boolean> => {
    const [found] = (await shown()).outboxes as { failed: number; moved: number }[];
    return found?.failed === 1 && found.moved === 1;
  };
  await waitUntil(isShown, "the server shows both rows");

  const metrics = fleetMetrics(sluice, { everyMs: 1_000 });
  const labels = { outbox: `public.${table}` };
  const of = async (name: string) => valueOf(await metrics.text(), name, labels);
  await waitUntil(async () => (await of("sluice_outbox_relayed_total")) === 1, "it is exported");
  expect(await of("sluice_outbox_failed")).toBe(1);
  expect(await of("sluice_outbox_pending")).toBe(0);
  expect(await of("sluice_outbox_oldest_seconds")).toBe(0);
  expect(await of("sluice_outbox_report_age_seconds")).toBeGreaterThanOrEqual(0);
  const { page, errors } = await boards.open(`${url}/#/queues`);
  const row = page.getByRole("region", { name: "Outboxes" }).locator("tbody tr");
  await row.first().waitFor();
  expect(await row.locator("td").allTextContents()).toMatchObject([
    `public.${table}`,
    "0",
    "–",
    "1",
    "1",
    expect.stringMatching(/ ago$/),
  ]);
  expect(errors).toEqual([]);
});
