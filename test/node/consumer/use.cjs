const assert = require("node:assert/strict");

/** Calls and a job, as a service would make them, in memory and in the Redis of $REDIS_URL. */
exports.use = async function use({ createSluice }) {
  const redis = process.env.REDIS_URL;
  delete process.env.REDIS_URL;
  const logger = { warn() {}, error() {} };
  const prefix = `consumer-${process.pid}`;
  for (const options of [{}, { redis, prefix }]) {
    const sluice = createSluice({ logger, ...options });
    const double = sluice
      .bucket("doubles", { rate: "1000/s" })
      .throttled(async (number) => 2 * number);
    assert.deepEqual(await Promise.all([1, 2, 3].map((number) => double(number))), [2, 4, 6]);
    await sluice.close();
  }

  const sluice = createSluice({ logger, redis, prefix });
  const queue = sluice.queue("jobs", { bucket: sluice.bucket("jobs", { rate: "1000/s" }) });
  const done = new Promise((resolve) => {
    sluice.worker(queue, async (job) => resolve(job.data));
  });
  await queue.enqueue({ order: 7 });
  assert.deepEqual(await done, { order: 7 });
  await sluice.close();
};
