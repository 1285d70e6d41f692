import type { Flags } from "../flags.ts";
import type { Bench } from "../fleet/run-load.ts";
import type { Table } from "../table.ts";
import { measureBadEndpoints } from "./bad-endpoints.ts";
import { measureManyEndpoints } from "./many-endpoints.ts";
import { measurePace } from "./pace.ts";
import { measureThroughput } from "./throughput.ts";

/**
 * Measures webhooks: their throughput, how even their rate is, and whether bad or many endpoints affect other
 * endpoints.
 */
export async function measureWebhooks(bench: Bench, flags: Flags): Promise<Table[]> {
  return [
    await measureThroughput(bench, flags),
    await measurePace(bench, flags),
    await measureBadEndpoints(bench, flags),
    await measureManyEndpoints(bench, flags),
  ];
}
