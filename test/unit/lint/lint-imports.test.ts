import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { expect, it, onTestFinished } from "vitest";

const run = promisify(execFile);

interface Override {
  readonly rules: Readonly<Record<string, unknown>>;
}

/** The config's rules on imports alone: the others would need the types of real files. */
async function importRules(): Promise<readonly Override[]> {
  const config = JSON.parse(await readFile(".oxlintrc.json", "utf8")) as {
    readonly overrides: readonly Override[];
  };
  return config.overrides.filter(({ rules }) => "no-restricted-imports" in rules);
}

/** Those of the imports that the linter refuses; each is written `file -> specifier`, or `file -> type specifier`. */
async function refusedOf(imports: readonly string[]): Promise<readonly string[]> {
  const folder = await mkdtemp(join(tmpdir(), "sluice-imports-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const files = new Map<string, string[]>();
  for (const each of imports) {
    const [file = "", specifier = ""] = each.split(" -> ");
    files.set(file, [...(files.get(file) ?? []), specifier]);
  }
  for (const [file, specifiers] of files) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    const lines = specifiers.map((specifier) =>
      specifier.startsWith("type ")
        ? `import type {} from ${JSON.stringify(specifier.slice("type ".length))};\n`
        : `import ${JSON.stringify(specifier)};\n`,
    );
    await writeFile(join(folder, file), lines.join(""));
  }
  const config = { categories: { correctness: "off" }, overrides: await importRules() };
  await writeFile(join(folder, ".oxlintrc.json"), JSON.stringify(config));
  const oxlint = join(process.cwd(), "node_modules/.bin/oxlint");
  const { stdout } = await run(oxlint, ["--format=json", "src"], { cwd: folder }).catch(
    (failed: { readonly stdout: string }) => failed,
  );
  const { diagnostics } = JSON.parse(stdout) as {
    readonly diagnostics: readonly { readonly message: string; readonly filename: string }[];
  };
  return diagnostics.map(
    ({ message, filename }) =>
      `${filename} -> ${/^'(.*)' import is restricted/.exec(message)?.[1]}`,
  );
}

it("the linter refuses imports against the arrows between folders", async () => {
  const wrong = [
    "src/sluice/create-sluice.ts -> ioredis",
    "src/core/store.ts -> ../throttle/bucket.ts",
    "src/core/store.ts -> node:fs",
    "src/queue/queue.ts -> ./outbox/relay.ts",
    "src/queue/outbox/relay.ts -> ioredis",
    "src/queue/outbox/relay.ts -> ../../throttle/bucket.ts",
    "src/queue/outbox/relay.ts -> ../../webhooks/log/log.ts",
    "src/core/policy/policy.ts -> ../../stores/redis/backend.ts",
    "src/core/limits/rate.ts -> ../policy/policy.ts",
    "src/stores/memory/memory-store.ts -> ../redis/backend.ts",
    "src/stores/memory/lua/script.ts -> ../../redis/scripts/script.ts",
    "src/stores/memory/lua/script.ts -> node:buffer",
    "src/entries/testing/index.ts -> ../../throttle/bucket.ts",
    "src/entries/llm/presets.ts -> ../../queue/queue.ts",
    "src/insight/overview.ts -> ./metrics/counts.ts",
    "src/sluice/create-sluice.ts -> prom-client",
    "src/insight/metrics/counts.ts -> ../../stores/redis/backend.ts",
    "src/throttle/bucket/facts/tally.ts -> ../../metrics/counts.ts",
    "src/entries/llm/presets.ts -> ../../stores/redis/backend.ts",
    "src/throttle/bucket/create-bucket.ts -> ../../llm/presets.ts",
    "src/server/server.ts -> ../stores/redis/backend.ts",
    "src/server/server.ts -> ../cli/program.ts",
    "src/server/decide/draws.ts -> ../forward/forward.ts",
    "src/server/decide/draws.ts -> undici",
    "src/insight/overview.ts -> ../server/server.ts",
    "src/sluice/create-sluice.ts -> eventsource-parser",
    "src/stores/redis/backend.ts -> ../memory/memory-store.ts",
    "src/stores/redis/backend.ts -> bullmq",
    "src/stores/redis/ioredis/closing.ts -> ../backend.ts",
    "src/stores/redis/ioredis/closing.ts -> ../../../throttle/bucket.ts",
    "src/stores/redis/scripts/script.ts -> ../ioredis/closing.ts",
    "src/stores/redis/scripts/script.ts -> ../backend.ts",
    "src/stores/redis/scripts/bucket/frame.ts -> ../../ioredis/closing.ts",
    "src/stores/redis/ioredis/closing.ts -> ../queue/clock.ts",
    "src/stores/redis/queue/clock.ts -> ../backend.ts",
    "src/core/stores/insight/store.ts -> ../../policy/policy.ts",
    "src/core/input/options.ts -> ../policy/policy.ts",
    "src/stores/redis/requests/requests.ts -> ../backend.ts",
    "src/sluice/options.ts -> ./create-sluice.ts",
    "src/throttle/costs.ts -> ./bucket.ts",
    "src/throttle/costs.ts -> ./slot/slot.ts",
    "src/throttle/bucket.ts -> ../stores/redis/backend.ts",
    "src/throttle/bucket/create-bucket.ts -> ../../stores/redis/backend.ts",
    "src/throttle/bucket/create-bucket.ts -> ../../sluice/create-sluice.ts",
    "src/throttle/wrap/fetch.ts -> ../bucket/create-bucket.ts",
    "src/throttle/wrap/fetch.ts -> ioredis",
    "src/throttle/try/try-draw.ts -> ../wrap/fetch.ts",
    "src/throttle/try/try-draw.ts -> ../bucket.ts",
    "src/throttle/waiting/pacer.ts -> ../try/try-draw.ts",
    "src/throttle/waiting/pacer.ts -> ../bucket.ts",
    "src/throttle/outage/retries.ts -> ../waiting/pacer.ts",
    "src/throttle/slot/slot.ts -> ../outage/retries.ts",
    "src/throttle/slot/slot.ts -> ../feedback/feedback.ts",
    "src/throttle/feedback/feedback.ts -> ../slot/slot.ts",
    "src/throttle/feedback/feedback.ts -> ../bucket.ts",
    "src/queue/queue.ts -> ../stores/redis/backend.ts",
    "src/queue/queue.ts -> ioredis",
    "src/queue/lanes/park.ts -> ../../stores/redis/scripts/queue/lanes.ts",
    "src/queue/worker/worker.ts -> ../../sluice/create-sluice.ts",
    "src/queue/enqueue/enqueue.ts -> ../worker/worker.ts",
    "src/queue/manage/control.ts -> ../enqueue/enqueue.ts",
    "src/queue/manage/control.ts -> ../forecast/forecast.ts",
    "src/queue/forecast/forecast.ts -> ../manage/control.ts",
    "src/queue/lanes/park.ts -> ../manage/control.ts",
    "src/queue/bullmq/stored-queue.ts -> ../lanes/park.ts",
    "src/queue/queue.ts -> ../webhooks/delivery/deliver.ts",
    "src/throttle/bucket.ts -> undici",
    "src/webhooks/delivery/deliver.ts -> ioredis",
    "src/webhooks/delivery/deliver.ts -> ../../stores/redis/backend.ts",
    "src/webhooks/guard/connector.ts -> ../delivery/deliver.ts",
    "src/webhooks/guard/connector.ts -> ../../queue/queue.ts",
    "src/webhooks/signing/sign.ts -> ../guard/connector.ts",
    "src/webhooks/signing/sign.ts -> undici",
    "src/webhooks/endpoints/record.ts -> ../delivery/deliver.ts",
    "src/webhooks/sending/send.ts -> ../delivery/deliver.ts",
    "src/webhooks/delivery/attempt.ts -> ../log/log.ts",
    "src/webhooks/log/log.ts -> ../../stores/redis/webhooks/store.ts",
    "src/stores/redis/webhooks/store.ts -> ../backend.ts",
  ];

  expect((await refusedOf(wrong)).toSorted()).toEqual(wrong.toSorted());
});

it("the linter allows imports along the arrows", async () => {
  const right = [
    "src/sluice/create-sluice.ts -> ../throttle/bucket/create-bucket.ts",
    "src/stores/memory/memory-store.ts -> ../../core/store.ts",
    "src/stores/memory/memory-store.ts -> ../redis/scripts/script.ts",
    "src/insight/metrics/process-metrics.ts -> prom-client",
    "src/insight/metrics/fleet-metrics.ts -> ../overview.ts",
    "src/stores/redis/backend.ts -> ./ioredis/closing.ts",
    "src/stores/redis/ioredis/closing.ts -> ../scripts/script.ts",
    "src/stores/redis/queue/store.ts -> ../scripts/queue/lanes.ts",
    "src/throttle/bucket/create-bucket.ts -> ../wrap/fetch.ts",
    "src/throttle/wrap/fetch.ts -> ../bucket.ts",
    "src/throttle/wrap/fetch.ts -> ../try/try-draw.ts",
    "src/throttle/try/try-draw.ts -> ../waiting/group.ts",
    "src/throttle/waiting/pacer.ts -> ../outage/retries.ts",
    "src/throttle/outage/outage-store.ts -> ../slot/bucket-clock.ts",
    "src/throttle/slot/settle.ts -> node:timers/promises",
    "src/throttle/feedback/feedback.ts -> ../lru.ts",
    "src/queue/worker/worker.ts -> ../../throttle/slot/slot.ts",
    "src/queue/enqueue/enqueue.ts -> ../lanes/park.ts",
    "src/queue/forecast/forecast.ts -> ../../core/limits/registry.ts",
    "src/queue/lanes/park.ts -> ../bullmq/errors.ts",
    "src/queue/lanes/park.ts -> type ../../stores/redis/scripts/queue/lanes.ts",
    "src/webhooks/index.ts -> ./signing/sign.ts",
    "src/webhooks/delivery/deliver.ts -> ../guard/connector.ts",
    "src/webhooks/guard/connector.ts -> undici",
    "src/webhooks/log/log.ts -> ../delivery/attempt-entry.ts",
    "src/webhooks/log/log.ts -> type ../../stores/redis/webhooks/store.ts",
    "src/stores/redis/webhooks/store.ts -> ../scripts/webhooks/keys.ts",
    "src/webhooks/signing/sign.ts -> standardwebhooks",
  ];

  expect(await refusedOf(right)).toEqual([]);
});
