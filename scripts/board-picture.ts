/**
 * Takes the picture of the board in `docs/images/`, with an invented fleet. `npx tsx --conditions=@sluice/source
 * scripts/board-picture.ts`
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { createSluice } from "sluice";
import { createServer } from "sluice/server";
import { startRedis } from "../test/support/redis/local-redis.ts";
import { openBrowser } from "../test/support/server/browser.ts";

const FOLDER = join(import.meta.dirname, "../docs/images");
/** Rates, and the number of calls that arrive each second. */
const BUCKETS = [
  { name: "stripe", rate: "100/s", come: 45 },
  { name: "openai", rate: "20/s", come: 24 },
  { name: "shopify", rate: "40/s", come: 12 },
  { name: "mail", rate: "300/min", come: 2 },
  { name: "webhooks", rate: "200/s", come: 90 },
  { name: "search", rate: "50/s", come: 3 },
] as const;
const LAST_MS = 150_000;

const redis = await startRedis();
const sluice = createSluice({ redis: redis.url, prefix: "sluice-picture" });
const server = await createServer(sluice, { port: 0, insecureLocal: true, logger: false });
const browser = await openBrowser();
try {
  const { url } = await server.listen();
  const ends = performance.now() + LAST_MS;
  const calling = BUCKETS.map(async ({ name, rate, come }) => {
    const bucket = sluice.bucket(name, { rate });
    while (performance.now() < ends) {
      // Callers that still wait at the end get an error, because the sluice closes.
      bucket.draw().catch(() => undefined);
      await pause(1_000 / come);
    }
  });
  await pause(LAST_MS / 2);
  const forMs = 3_600_000;
  const stripe = await sluice.find("stripe");
  await stripe!.configure({ rate: "40/s" }, { by: "ann", reason: "429s since 3:02", forMs });
  await (await sluice.find("mail"))!.pause({ by: "bob", reason: "maintenance" });
  await pause(LAST_MS / 2 - 5_000);

  mkdirSync(FOLDER, { recursive: true });
  const page = await browser.newPage({ viewport: { width: 1120, height: 640 } });
  await page.goto(url);
  await page.locator("table.cards").waitFor();
  await page.screenshot({ path: join(FOLDER, "board.png") });
  await Promise.all(calling);
} finally {
  await browser.close();
  await server.close();
  await sluice.close();
  await redis.stop();
}
