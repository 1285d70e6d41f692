import { mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { CodecError, InvalidOptionError, type Codec, type Job } from "sluice";
import { compression, encryption, fileStore, offload } from "sluice/codec";
import { outboxRowsOf } from "../../../src/queue/enqueue/enqueue.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import { newKey, openEncoded, storedText } from "../../support/jobs/open-encoded.ts";
import type { EncodedWorkerSettings } from "../../support/processes/encoded-worker.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = children();
const SECRET = "4000-0566-5566-5556";
const key = newKey();
const encrypted = (): Codec => encryption({ keys: { current: "k1", k1: key } });

async function newFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "sluice-payloads-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  return folder;
}

describe("an encrypted queue", () => {
  it("shows Redis neither data, results nor progress, and shows them to its own processes", async () => {
    const lines: string[] = [];
    const note = (facts: object, text: string): void =>
      void lines.push(JSON.stringify(facts), text);
    const logger = { warn: note, error: note };
    const { sluice, queue } = openEncoded<object>(sluices, encrypted(), { logger });
    const metrics = await sluice.metrics();
    const events: object[] = [];
    queue.on("done", (event) => void events.push(event));
    queue.on("progress", (event) => void events.push(event));
    const parked = await queue.enqueue({ card: SECRET, n: 1 }, { key: "acme", delayMs: 3_600_000 });
    await queue.enqueue({ card: SECRET }, { every: 3_600_000, dedupeId: "hourly" });
    const seen: Job<object>[] = [];
    const worker = sluice.worker(queue, async (job, { progress }) => {
      if ("fails" in job.data) throw new TypeError("declined");
      seen.push(job);
      await progress({ reading: SECRET });
      return { paid: SECRET };
    });
    const ofWorker: object[] = [];
    worker.on("active", ({ job }) => void ofWorker.push(job.data));
    worker.on("done", ({ job, result }) => void ofWorker.push({ data: job.data, result }));
    worker.on("dead", ({ job }) => void ofWorker.push({ dead: job.data }));

    const job = await queue.enqueue({ card: SECRET }, { id: "charge-1" });
    expect(await job.finished()).toEqual({ paid: SECRET });
    await queue.enqueue({ card: SECRET, fails: true }, { attempts: 1, id: "charge-2" });
    await waitUntil(async () => (await queue.failed()).length === 1, "a job is dead");
    await waitUntil(() => events.some((event) => "result" in event), "the event has come");

    const stored = await storedText(sluices.prefix());
    expect(stored).toContain("aes-256-gcm:k1");
    expect(stored).not.toContain(SECRET);
    expect(stored).not.toContain(Buffer.from(SECRET).toString("base64").slice(0, 12));
    expect(lines.join("\n")).not.toContain(SECRET);
    expect(await metrics.text()).not.toContain(SECRET);
    expect(seen.map(({ data }) => data)).toContainEqual({ card: SECRET });
    expect(await queue.job("charge-1")).toMatchObject({
      data: { card: SECRET },
      result: { paid: SECRET },
    });
    expect(await (await queue.job("charge-1"))!.progress()).toEqual({ reading: SECRET });
    expect((await queue.failed())[0]).toMatchObject({ data: { card: SECRET, fails: true } });
    expect(events).toContainEqual({ jobId: "charge-1", progress: { reading: SECRET } });
    expect(events).toContainEqual({ jobId: "charge-1", result: { paid: SECRET } });
    expect(ofWorker).toContainEqual({ card: SECRET });
    expect(ofWorker).toContainEqual({ data: { card: SECRET }, result: { paid: SECRET } });
    expect(ofWorker).toContainEqual({ dead: { card: SECRET, fails: true } });
    expect((await queue.jobs({ key: "acme" })).jobs.map(({ data }) => data)).toEqual([
      { card: SECRET, n: 1 },
    ]);
    expect(await parked.update({ card: SECRET, n: 2 })).toBe(true);
    expect((await queue.job(parked.id))?.data).toEqual({ card: SECRET, n: 2 });
    expect(await storedText(sluices.prefix())).not.toContain(SECRET);
  });

  it("deduplicates by the id, returns the data of the job that exists, and replays with it", async () => {
    const { sluice, queue } = openEncoded(sluices, encrypted());
    await queue.enqueue({ n: 1 }, { dedupeId: "one" });
    const met = await queue.enqueue({ n: 2 }, { dedupeId: "one" });
    const newest = await queue.enqueue({ n: 3 }, { dedupeId: "one", dedupe: "last" });

    expect(met).toMatchObject({ isNew: false, data: { n: 1 } });
    expect((await queue.job(newest.id))?.data).toEqual({ n: 3 });

    let isFailing = true;
    const seen: object[] = [];
    sluice.worker(queue, ({ data }) => {
      seen.push(data);
      if (isFailing) throw new Error("declined");
    });
    await queue.enqueue({ n: 4 }, { attempts: 1, id: "four" });
    await waitUntil(async () => (await queue.failed()).length === 1, "a job is dead");
    isFailing = false;
    await (await queue.job("four"))!.update({ n: 5 });
    await queue.replay("four");
    await (await queue.job("four"))?.finished();

    expect(seen).toContainEqual({ n: 5 });
  });

  it("reads jobs from before it had a codec, and data that looks encoded", async () => {
    const before = openEncoded(sluices, undefined);
    const lookalike = { "$sluice:codec": ["gzip"], bytes: "AAAA" };
    await before.queue.enqueue({ n: 1 }, { id: "plain" });
    await before.queue.enqueue(lookalike, { id: "lookalike" });

    const { queue } = openEncoded(sluices, encrypted());
    await queue.enqueue(lookalike, { id: "encoded" });

    expect((await queue.job("plain"))?.data).toEqual({ n: 1 });
    expect((await queue.job("lookalike"))?.data).toEqual(lookalike);
    expect((await before.queue.job("lookalike"))?.data).toEqual(lookalike);
    expect((await queue.job("encoded"))?.data).toEqual(lookalike);
  });

  it("hands batches and job names decoded data, and stores their results encoded", async () => {
    const { sluice, queue } = openEncoded<object>(sluices, encrypted());
    sluice.worker(queue, (jobs) => jobs.map(({ data }) => ({ echo: data })), {
      batch: { size: 2, waitMs: 10 },
    });

    const jobs = await queue.enqueueMany([{ card: SECRET }, { card: SECRET, n: 2 }]);

    expect(await Promise.all(jobs.map((job) => job.finished()))).toEqual([
      { echo: { card: SECRET } },
      { echo: { card: SECRET, n: 2 } },
    ]);
    expect(await storedText(sluices.prefix())).not.toContain(SECRET);
  });
});

describe("events of a worker", () => {
  it("have decoded data for jobs that fail before their data was decoded, in order", async () => {
    const { sluice, queue } = openEncoded(sluices, encrypted());
    const options = { name: "charge", maxWaitMs: 1 };
    const late = await queue.enqueue({ card: SECRET, n: 1 }, { id: "late", ...options });
    await queue.enqueue({ card: SECRET, n: 2 }, { id: "unknown", name: "unknown", attempts: 1 });
    await waitUntil(() => Date.now() > late.dueAtMs + 10, "the job is too late");
    const worker = sluice.worker(queue, { charge: () => "done" });
    const events: unknown[] = [];
    for (const name of ["active", "failed", "dead"] as const)
      worker.on(name, ({ job }) => void events.push([name, job.id, job.data]));
    worker.on("closed", () => void events.push("closed"));

    await waitUntil(async () => (await queue.failed()).length === 2, "both are dead");
    await queue.enqueue({ card: SECRET, n: 3 }, { id: "charge", name: "charge" });
    await (await queue.job("charge"))!.finished();
    await worker.close();

    const ofJob = (id: string) => events.filter((event) => Array.isArray(event) && event[1] === id);
    expect(ofJob("late")).toEqual([
      ["failed", "late", { card: SECRET, n: 1 }],
      ["dead", "late", { card: SECRET, n: 1 }],
    ]);
    expect(ofJob("unknown")).toEqual([
      ["failed", "unknown", { card: SECRET, n: 2 }],
      ["dead", "unknown", { card: SECRET, n: 2 }],
    ]);
    expect(events.slice(-2)).toEqual([["active", "charge", { card: SECRET, n: 3 }], "closed"]);
  });
});

describe("a worker that cannot decode", () => {
  it("runs no handler, keeps the job as a dead letter that names it and the codec, and loses nothing", async () => {
    const { queue } = openEncoded(sluices, encrypted());
    const job = await queue.enqueue({ card: SECRET }, { attempts: 1 });
    const other = openEncoded(sluices, undefined);
    let runs = 0;
    const worker = other.sluice.worker(other.queue, () => {
      runs += 1;
    });
    const failures: Error[] = [];
    const shown: Pick<Job<unknown>, "data" | "unreadable">[] = [];
    worker.on("failed", ({ error, job: failed }) => {
      failures.push(error);
      shown.push(failed);
    });

    await waitUntil(async () => (await queue.failed()).length === 1, "the job is dead");

    const [dead] = await queue.failed();
    expect(dead).toMatchObject({ id: job.id, code: "ERR_CODEC", data: { card: SECRET } });
    expect(dead!.reason).toContain(`The data of job ${job.id} of queue "jobs" cannot be decoded`);
    expect(dead!.reason).toContain('"aes-256-gcm:k1"');
    expect(failures[0]).toBeInstanceOf(CodecError);
    expect(failures[0]).toMatchObject({ action: "decode", codec: "aes-256-gcm:k1", id: job.id });
    expect(shown).toMatchObject([{ data: undefined, unreadable: failures[0] }]);
    expect(runs).toBe(0);

    await worker.close();
    const { sluice } = openEncoded(sluices, encrypted());
    const own = openEncoded<string>(sluices, encrypted());
    own.sluice.worker(own.queue, () => "done");
    await queue.replay({});
    expect(await (await own.queue.job(job.id))!.finished()).toBe("done");
    await sluice.close();
  });

  it("shows operators why it cannot show the data, and refuses to store clear text", async () => {
    const { queue } = openEncoded(sluices, encrypted());
    await queue.enqueue({ card: SECRET }, { id: "charge-1", delayMs: 3_600_000 });
    const operator = sluices.open();
    await waitUntil(
      async () => (await operator.findQueue("jobs")) !== undefined,
      "the queue is reported",
    );
    const found = (await operator.findQueue("jobs"))!;

    const { jobs } = await found.jobs();
    const refusal = await rejectionOf(found.enqueue({ card: SECRET }));
    const noUpdate = await rejectionOf(jobs[0]!.update({ card: SECRET }));

    expect(jobs[0]).toMatchObject({ id: "charge-1", data: undefined });
    expect(jobs[0]!.unreadable).toMatchObject({ code: "ERR_CODEC", codec: "aes-256-gcm:k1" });
    expect(refusal).toBeInstanceOf(InvalidOptionError);
    expect(refusal).toMatchObject({ option: "codec", value: "aes-256-gcm" });
    expect(noUpdate).toBeInstanceOf(InvalidOptionError);
    expect((await queue.counts()).delayed).toBe(1);
  });

  it("cannot read jobs that were copied from another queue", async () => {
    const { sluice, queue } = openEncoded(sluices, encrypted());
    await queue.enqueue({ card: SECRET }, { id: "charge-1" });
    const bucket = sluice.bucket("downstream");
    const thief = sluice.queue("thief", { bucket, codec: encrypted() });
    const raw = openEncoded(sluices, undefined);
    const stored = await raw.queue.job("charge-1");
    expect(stored?.unreadable).toBeDefined();

    const text = (await storedText(sluices.prefix())).match(/\{\\"\$sluice:codec\\":[^}]*\}/)![0];
    const plain = sluices.open();
    const open = plain.queue<object>("thief", {
      bucket: plain.bucket("downstream", { rate: "1000/s" }),
    });
    await open.enqueue({}, { id: "stolen" });
    const redis = new Redis(inject("redisUrl"));
    onTestFinished(() => redis.disconnect());
    const { prefix, name } = thief.stored;
    await redis.hset(`${prefix}:${name}:stolen`, "data", JSON.parse(`"${text}"`) as string);

    const stolen = await thief.job("stolen");

    expect(stolen?.data).toBeUndefined();
    expect(stolen?.unreadable?.message).toContain("belongs to another queue");
  });
});

describe("keys that rotate", () => {
  it("stay readable in both directions while two processes have different current keys", async () => {
    const [k1, k2] = [newKey(), newKey()];
    const start = (settings: Pick<EncodedWorkerSettings, "keys" | "jobs">) => {
      const all = { redis: inject("redisUrl"), prefix: sluices.prefix(), ...settings };
      return processes.start("encoded-worker.ts", [JSON.stringify(all)]);
    };
    const old = start({ keys: { current: "k1", k1, k2 }, jobs: [{ n: 1 }, { n: 2 }] });
    const newer = start({ keys: { current: "k2", k1, k2 }, jobs: [{ n: 3 }] });
    await waitUntil(
      () => [old, newer].every(({ messages }) => messages.includes("ready")),
      "the jobs are stored",
    );
    expect(await storedText(sluices.prefix())).toMatch(/aes-256-gcm:k1[^]*aes-256-gcm:k2|k2[^]*k1/);
    // This worker has only the old key, so it retries the job of the new key until the other worker takes it.
    const behind = start({ keys: { current: "k1", k1 } });
    const heard = (of: typeof behind): object[] =>
      of.messages.filter((message) => typeof message === "object") as object[];
    await waitUntil(() => heard(behind).length === 2, "the old worker has done what it can");
    const ahead = start({ keys: { current: "k2", k1, k2 } });
    await waitUntil(() => heard(ahead).length === 1, "the new worker has done the rest");

    expect(heard(behind)).toEqual(expect.arrayContaining([{ data: { n: 1 } }, { data: { n: 2 } }]));
    expect(heard(ahead)).toEqual([{ data: { n: 3 } }]);
  });
});

describe("large payloads", () => {
  it("are kept in files by reference, and are limited by what Redis stores", async () => {
    const folder = await newFolder();
    const store = fileStore(folder);
    const codec = [compression(), encrypted(), offload({ store, aboveBytes: 1_000 })];
    const { sluice, queue } = openEncoded<object>(sluices, codec, { maxJobBytes: 4_000 });
    sluice.worker(queue, ({ data }) => data as object);
    const text = Array.from({ length: 20_000 }, (_, n) => `${n % 977} ${SECRET}`).join(" ");

    const job = await queue.enqueue({ text });

    expect(await job.finished()).toEqual({ text });
    const names = (await readdir(folder, { recursive: true })).filter((name) => name.length > 30);
    expect(names).toHaveLength(2);
    for (const name of names)
      expect(await readFile(join(folder, name), "utf8")).not.toContain(SECRET);
    const stored = await storedText(sluices.prefix());
    expect(stored).toContain("offload:");
    expect(stored.length).toBeLessThan(20_000);
    const { queue: inline } = openEncoded(sluices, encrypted(), { maxJobBytes: 4_000 });
    const tooLarge = await rejectionOf(inline.enqueue({ text: "x".repeat(4_000) }));
    expect(tooLarge).toMatchObject({ code: "ERR_INVALID_OPTION", option: "data" });
  });

  it("of recurring jobs stay in Redis, and jobs that are due too late are refused", async () => {
    const folder = await newFolder();
    const store = fileStore(folder, { keepMs: 3_600_000 });
    const { queue } = openEncoded(sluices, offload({ store, aboveBytes: 10 }));
    const data = { text: "more than ten bytes" };
    await queue.enqueue(data, { every: 3_600_000, dedupeId: "hourly" });

    const dedupe = { mode: "debounce", waitMs: 3_600_000 } as const;
    const rows = outboxRowsOf(queue)!;
    const late = await Promise.all(
      [
        queue.enqueue(data, { delayMs: 3_600_000 }),
        queue.enqueue(data, { dedupeId: "burst", dedupe }),
        rows.take("outbox.enqueue()", data, { delayMs: 3_600_000 }),
      ].map((enqueued: Promise<unknown>) => rejectionOf(enqueued)),
    );

    expect(await readdir(folder)).toEqual([]);
    for (const refusal of late)
      expect(refusal).toMatchObject({ code: "ERR_INVALID_OPTION", option: "delayMs" });
    expect((await queue.jobOf("hourly"))?.data).toEqual(data);
  });

  it("that are gone make a dead letter that says so", async () => {
    const folder = await newFolder();
    const codec = offload({ store: fileStore(folder), aboveBytes: 10 });
    const { sluice, queue } = openEncoded(sluices, codec);
    const job = await queue.enqueue({ text: "more than ten bytes" }, { attempts: 1 });
    await Promise.all(
      (await readdir(folder)).map((name) => rm(join(folder, name), { recursive: true })),
    );

    sluice.worker(queue, () => undefined);

    await waitUntil(async () => (await queue.failed()).length === 1, "the job is dead");
    const [dead] = await queue.failed();
    expect(dead).toMatchObject({ id: job.id, code: "ERR_CODEC" });
    expect(dead!.reason).toContain("does not exist");
  });
});

describe("fileStore()", () => {
  it("removes files that were neither written nor read for keepMs, and no files of others", async () => {
    const folder = await newFolder();
    const store = fileStore(folder, { keepMs: 3_600_000 });
    const about = { queue: "jobs", kind: "data", signal: AbortSignal.abort() } as const;
    const pathOf = (reference: string): string => join(folder, reference.slice(0, 2), reference);
    const put = (): Promise<string> => store.put(Buffer.from("payload"), about);
    const [unread, read] = [await put(), await put()];
    const foreign = join(folder, unread.slice(0, 2), "notes.txt");
    await writeFile(foreign, "");
    const longAgo = new Date(Date.now() - 7_200_000);
    for (const path of [pathOf(unread), pathOf(read), foreign])
      await utimes(path, longAgo, longAgo);

    expect(Buffer.from(await store.get(read, about)).toString()).toBe("payload");
    // Each store looks for expired files when it first writes one.
    await fileStore(folder, { keepMs: 3_600_000 }).put(Buffer.from("new"), about);

    const names = (): Promise<string[]> => readdir(join(folder, unread.slice(0, 2)));
    await waitUntil(async () => !(await names()).includes(unread), "the expired file is removed");
    await expect(stat(pathOf(read))).resolves.toBeDefined();
    await expect(stat(foreign)).resolves.toBeDefined();
  });
});

describe("codecs", () => {
  const about = { queue: "jobs", kind: "data" } as const;
  const fresh = { ...about, dueInMs: 0, isShared: false };

  it("do not decompress a payload to more than maxBytes", async () => {
    const bomb = (await compression().encode(Buffer.alloc(100_000), fresh))!.bytes;

    const codec = compression({ maxBytes: 99_999 });

    const stored = { ...about, version: undefined };
    await expect(async () => codec.decode(bomb, stored)).rejects.toThrow(/larger than/);
    expect(await compression({ maxBytes: 100_000 }).decode(bomb, stored)).toHaveLength(100_000);
  });

  it("do not decrypt a result as the data of a job", async () => {
    const codec = encrypted();
    const { bytes, version } = (await codec.encode(Buffer.from("1"), {
      ...fresh,
      kind: "result",
    }))!;

    await expect(async () => codec.decode(bytes, { ...about, version })).rejects.toThrow(
      /was changed, belongs to another queue/,
    );
  });

  it("do not accept other bytes from a store than those that were stored", async () => {
    const store = { put: async () => "reference", get: async () => Buffer.from("forged") };
    const codec = offload({ store, aboveBytes: 1 });
    const { bytes, version } = (await codec.encode(Buffer.from("payload"), fresh))!;

    await expect(async () => codec.decode(bytes, { ...about, version })).rejects.toThrow(
      "the store returned other bytes",
    );
  });
});

describe("a codec of the application", () => {
  it("may be synchronous or asynchronous, and may leave payloads as they are", async () => {
    const reverse: Codec = {
      name: "reverse",
      encode: (bytes) => ({ bytes: Buffer.from(bytes).reverse() }),
      decode: async (bytes) => Buffer.from(bytes).reverse(),
    };
    const never: Codec = { name: "never", encode: () => undefined, decode: (bytes) => bytes };
    const { queue } = openEncoded(sluices, [reverse, never]);

    const { id } = await queue.enqueue({ n: 1 });

    expect((await queue.job(id))?.data).toEqual({ n: 1 });
    expect(await storedText(sluices.prefix())).toContain("reverse");
  });

  it("that fails to encode rejects the call, and nothing is stored", async () => {
    const failing: Codec = {
      name: "vault",
      encode() {
        throw new Error("the vault is sealed");
      },
      decode: (bytes) => bytes,
    };
    const { queue } = openEncoded(sluices, failing);

    const one = await rejectionOf(queue.enqueue({ card: SECRET }));
    const many = await rejectionOf(queue.enqueueMany([{ n: 1 }, { n: 2 }]));

    expect(one).toMatchObject({ code: "ERR_CODEC", action: "encode", codec: "vault" });
    expect((one as Error).message).toContain("the vault is sealed");
    expect((one as Error).message).not.toContain(SECRET);
    expect(many).toBeInstanceOf(CodecError);
    expect((await queue.counts()).waiting).toBe(0);
  });

  it("that fails to encode a result leaves the job done without it", async () => {
    const warnings: string[] = [];
    const logger = { warn: (_facts: object, text: string) => warnings.push(text), error() {} };
    const half: Codec = {
      name: "half",
      encode(bytes, { kind }) {
        if (kind === "result") throw new Error("no room");
        return { bytes };
      },
      decode: (bytes) => bytes,
    };
    const { sluice, queue } = openEncoded(sluices, half, { logger });
    sluice.worker(queue, () => SECRET);

    const job = await queue.enqueue({});

    expect(await job.finished()).toBeNull();
    expect(warnings.join()).toContain("done without it");
    expect(await storedText(sluices.prefix())).not.toContain(SECRET);
  });
});

describe("options of codecs", () => {
  it("that can never work are refused by name, and keys are not shown", () => {
    const refusal = (make: () => unknown): Partial<InvalidOptionError> => {
      try {
        make();
      } catch (error) {
        if (error instanceof InvalidOptionError) return error;
        throw error;
      }
      throw new Error("nothing was refused");
    };
    const short = Buffer.from("too short").toString("base64");
    const keys = (given: object): Parameters<typeof encryption>[0]["keys"] => given as never;

    expect(refusal(() => encryption({ keys: keys({ current: "k2", k1: key }) })).option).toBe(
      "keys.current",
    );
    const wrong = refusal(() => encryption({ keys: { current: "k1", k1: short } }));
    expect(wrong).toMatchObject({ option: "keys.k1", value: "***" });
    expect(wrong.message).not.toContain(short);
    expect(refusal(() => encryption({ keys: keys({ current: "a b", "a b": key }) })).option).toBe(
      "keys.***",
    );
    const swapped = newKey().slice(0, 43).replaceAll(/[+/]/g, "A");
    for (const given of [
      { current: "k1", [swapped]: "k1" },
      { current: "k1", [swapped]: swapped },
    ])
      expect(refusal(() => encryption({ keys: keys(given) })).message).not.toContain(swapped);
    expect(refusal(() => encryption({ key } as never)).message).not.toContain(key);
    expect(refusal(() => compression({ level: 10 })).option).toBe("level");
    expect(refusal(() => compression({ speed: 1 } as never)).option).toBe("speed");
    expect(refusal(() => offload({ store: {} as never })).option).toBe("store");
    expect(refusal(() => fileStore("")).option).toBe("folder");
    expect(refusal(() => fileStore("/tmp/x", { keepMs: 1 })).option).toBe("keepMs");
    for (const codec of [
      {},
      [],
      [compression(), compression()],
      { ...compression(), name: "A b" },
    ]) {
      expect(refusal(() => openEncoded(sluices, codec as never)).option).toBe("codec");
    }
  });
});

describe("results of parents", () => {
  it("are encoded for their queue, and decoded for children of another queue", async () => {
    const { sluice, queue } = openEncoded<object>(sluices, encrypted());
    const bucket = sluice.bucket("downstream");
    const children = sluice.queue<object, unknown>("children", { bucket, codec: encrypted() });
    const parent = await queue.enqueue({ card: SECRET });
    const child = await children.enqueue({ card: SECRET }, { after: [parent] });
    sluice.worker(queue, () => ({ paid: SECRET }));
    sluice.worker(children, async (_job, { parents }) =>
      (await parents()).map((each) => each.result),
    );

    expect(await child.finished()).toEqual([{ paid: SECRET }]);
    expect(await storedText(sluices.prefix())).not.toContain(SECRET);
  });
});
