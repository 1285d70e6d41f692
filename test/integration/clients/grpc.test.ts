import {
  Client,
  credentials,
  Metadata,
  Server,
  ServerCredentials,
  status,
  type sendUnaryData,
  type ServiceError,
} from "@grpc/grpc-js";
import { afterEach, describe, expect, it } from "vitest";
import { readAnswer } from "sluice";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { serviceOf } from "../../../src/server/decide/envoy/grpc-server.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const SERVICE = "api.Api";
const METHOD = "Get";
const asIs = (bytes: Buffer): Buffer => bytes;
const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

/** A client of a server that answers each call with this error; the server has one method of plain bytes. */
async function openClient(error: Partial<ServiceError>): Promise<() => Promise<Buffer>> {
  const server = new Server();
  server.addService(serviceOf(SERVICE, METHOD), {
    [METHOD]: (_call: unknown, done: sendUnaryData<Buffer>) => done(error, null),
  });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (failure, bound) =>
      failure === null ? resolve(bound) : reject(failure),
    );
  });
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
  closers.push(() => {
    client.close();
    server.forceShutdown();
  });
  return () =>
    new Promise((resolve, reject) => {
      client.makeUnaryRequest(
        `/${SERVICE}/${METHOD}`,
        asIs,
        asIs,
        Buffer.from("a"),
        (failure, value) => (failure === null ? resolve(value!) : reject(failure)),
      );
    });
}

function field(number: number, bytes: Buffer): Buffer {
  return Buffer.concat([Buffer.from([number * 8 + 2, bytes.length]), bytes]);
}

/** `google.rpc.Status` whose details have a RetryInfo of so many seconds. */
function retryInfo(seconds: number): Metadata {
  const metadata = new Metadata();
  const type = Buffer.from("type.googleapis.com/google.rpc.RetryInfo");
  const duration = field(1, Buffer.from([8, seconds]));
  const detail = Buffer.concat([field(1, type), field(2, duration)]);
  metadata.set("grpc-status-details-bin", Buffer.concat([Buffer.from([8, 8]), field(3, detail)]));
  return metadata;
}

function trailer(name: string, value: string): Metadata {
  const metadata = new Metadata();
  metadata.set(name, value);
  return metadata;
}

describe("a call of gRPC that is refused", () => {
  it.each<[string, Metadata, number]>([
    ["by its RetryInfo", retryInfo(30), 30_000],
    ["by a trailer", trailer("retry-after", "30"), 30_000],
    ["by its server's pushback", trailer("grpc-retry-pushback-ms", "30000"), 30_000],
    ["without a time", new Metadata(), 1_000],
  ])("cools its bucket, %s", async (_how, metadata, coolMs) => {
    const get = await openClient({ code: status.RESOURCE_EXHAUSTED, details: "Quota", metadata });
    const bucket = sluices.open().bucket("api", { rate: "1000/s" });

    await rejectionOf(bucket.throttled(get)());

    await waitUntil(async () => (await bucket.peek()).coolingForMs > 0, "the bucket cools");
    const { coolingForMs } = await bucket.peek();
    expect(coolingForMs).toBeGreaterThan(coolMs === 1_000 ? -1 : 18_000);
    expect(coolingForMs).toBeLessThanOrEqual(coolMs);
  });

  it("is not retried when its server forbids retries", async () => {
    const metadata = trailer("grpc-retry-pushback-ms", "-1");
    const get = await openClient({ code: status.RESOURCE_EXHAUSTED, details: "Quota", metadata });

    expect(await readAnswer(await rejectionOf(get()))).toMatchObject({
      refused: true,
      retry: false,
    });
  });

  it("does not count as refused when the server failed otherwise", async () => {
    const get = await openClient({ code: status.UNAVAILABLE, details: "away" });

    expect(await readAnswer(await rejectionOf(get()))).toMatchObject({ refused: false });
  });
});
