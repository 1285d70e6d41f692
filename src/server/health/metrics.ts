/**
 * Serves `/metrics`, with the metrics of this process and of the whole fleet. Only a server exports
 * fleet metrics.
 */
import type { FastifyInstance } from "fastify";
import { fleetMetrics } from "../../insight/metrics/index.ts";
import type { Metrics } from "../../insight/metrics/process-metrics.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { accessOf } from "../access/access.ts";
import { HttpProblem } from "../problem.ts";

/**
 * A name that is in the scope of every token without a restriction. It is not a valid bucket name,
 * so no restricted token can have it.
 */
const ANY = "{any}";

export function metricsRoute(app: FastifyInstance, { sluice }: { readonly sluice: Sluice }): void {
  let opening: Promise<Metrics> | undefined;

  async function open(): Promise<Metrics> {
    const metrics = await sluice.metrics();
    // Fleet metrics are read on each scrape. They end with the sluice, because another server of
    // this process may share the register.
    fleetMetrics(sluice, { register: metrics.register });
    return metrics;
  }

  app.get(
    "/metrics",
    {
      config: { needs: "view" },
      schema: {
        summary: "Metrics for Prometheus",
        tags: ["health"],
        response: { 200: { description: "All metrics, as text.", type: "string" } },
      },
    },
    async (request, reply) => {
      const { mayBucket, mayQueue } = accessOf(request);
      if (!mayBucket(ANY) || !mayQueue(ANY)) {
        throw new HttpProblem(
          "ERR_FORBIDDEN",
          "Metrics cover all buckets and queues, but the token is limited to some. Use a token without such a limit.",
        );
      }
      const metrics = await (opening ??= open());
      return reply.type(metrics.contentType).send(await metrics.text());
    },
  );
}
