/** A server of draws that ends when it is killed; or several of them on one port. Each answer says which process gave it. */
import cluster from "node:cluster";
import { concurrency, createSluice, tokenBucket } from "sluice";
import { createServer } from "sluice/server";

const [redis = "", prefix = "", leaseMs = "", workers = "1"] = process.argv.slice(2);

if (cluster.isPrimary && Number(workers) > 1) {
  for (let worker = 0; worker < Number(workers); worker++) cluster.fork();
} else {
  const sluice = createSluice({ redis, prefix });
  const tokens = tokenBucket({ capacity: 10_000, refill: "1/h", unit: "tokens" });
  const alone = { limits: [tokens, concurrency(1, { leaseMs: Number(leaseMs) })] };
  sluice.bucket("gpt", alone);
  sluice.bucket("lost", alone);
  sluice.bucket("many", { limits: [tokens, concurrency(100)] });
  sluice.queue("mail", { bucket: sluice.bucket("mail", { rate: "1000/s" }) });
  const server = await createServer(sluice, { port: 0, insecureLocal: true, logger: false });
  server.app.addHook("onRequest", (_request, reply, done) => {
    void reply.header("x-process", process.pid);
    done();
  });
  const { url } = await server.listen();
  console.log(url);
}
