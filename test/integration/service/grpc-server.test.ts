import { readFile } from "node:fs/promises";
import { connect } from "node:http2";
import { credentials } from "@grpc/grpc-js";
import { describe, expect, inject, it, onTestFinished, vi } from "vitest";
import { createServer } from "sluice/server";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { descriptor, envoyClients } from "../../support/server/envoy/client.ts";
import { services } from "../../support/server/service.ts";
import { makeCertificate } from "../../support/servers/certificate.ts";
import { closedUrl } from "../../support/servers/closed-url.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = services();
const clients = envoyClients();
const processes = scriptProcesses();

const ANN = descriptor(["user", "ann"]);
const QUIET = { warn: () => {}, error: () => {} };
const CALL = "token-that-may-call";

describe("the server for gRPC", () => {
  it("asks for a token that may draw from the bucket", async () => {
    const sluice = sluices.open();
    for (const name of ["mine", "theirs"]) sluice.bucket(name, { rate: "1/h", burst: 5 });
    const tokens = [
      { token: CALL, role: "call", buckets: ["mine"] },
      { token: "token-that-may-look", role: "view" },
    ] as const;
    const { grpc } = await servers.start(sluice, { tokens, grpc: { port: 0 } });
    const envoy = clients.open(grpc);
    const ask = (domain: string, metadata = {}) =>
      envoy.ask({ domain, descriptors: [ANN] }, metadata).then(
        ({ overall_code }) => overall_code,
        ({ code }: { readonly code: number }) => code,
      );

    expect(await ask("mine")).toBe(16);
    expect(await ask("mine", { authorization: "Bearer some-other-token" })).toBe(16);
    expect(await ask("mine", { authorization: "Bearer token-that-may-look" })).toBe(7);
    expect(await ask("theirs", { authorization: `Bearer ${CALL}` })).toBe(7);
    expect(await ask("mine", { authorization: `Bearer ${CALL}` })).toBe("OK");
    expect(await ask("mine", { "x-sluice-token": CALL })).toBe("OK");
  });

  it("holds no connection for a call whose message never comes", async () => {
    const { grpc } = await servers.start(sluices.open(), {
      tokens: [{ token: CALL, role: "call" }],
      grpc: { port: 0 },
    });
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const session = connect(`http://${grpc}`);
    const call = session.request({
      ":method": "POST",
      ":path": "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
      "content-type": "application/grpc",
      te: "trailers",
    });
    let status: unknown;
    call.on("response", (headers) => (status = headers["grpc-status"]));
    call.on("trailers", (headers) => (status = headers["grpc-status"]));

    // The server hears of the call in its own time.
    while (status === undefined) {
      vi.advanceTimersByTime(10_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    vi.useRealTimers();
    session.destroy();

    expect(status).toBe("4");
  });

  it("answers health checks without a token, as /readyz does", async () => {
    const redis = (await closedUrl()).replace("http", "redis");
    const away = sluices.open({ redis, storeTimeoutMs: 200, logger: QUIET });
    const options = { tokens: [{ token: CALL, role: "call" as const }], grpc: { port: 0 } };
    const [well, ill] = [
      clients.open((await servers.start(sluices.open(), options)).grpc),
      clients.open((await servers.start(away, options)).grpc),
    ];

    const statuses = [
      await well.check(),
      await well.check("envoy.service.ratelimit.v3.RateLimitService"),
      await ill.check(),
    ];

    expect(statuses).toEqual(["SERVING", "SERVING", "NOT_SERVING"]);
    expect(await rejectionOf(well.check("a.Service"))).toMatchObject({ code: 5 });
  });

  it("serves over the TLS of the server", async () => {
    const certificate = await makeCertificate();
    onTestFinished(() => certificate.remove());
    const cert = certificate.pem;
    const key = await readFile(certificate.keyFile, "utf8");
    const sluice = sluices.open();
    sluice.bucket("edge", { rate: "1/h" });
    const { grpc } = await servers.start(sluice, { tls: { key, cert }, grpc: { port: 0 } });
    const envoy = clients.open(grpc, credentials.createSsl(Buffer.from(cert)));

    expect((await envoy.ask({ domain: "edge", descriptors: [ANN] })).overall_code).toBe("OK");
  });

  it("refuses a message beyond the limit of bodies", async () => {
    const sluice = sluices.open();
    sluice.bucket("edge", { rate: "1/h" });
    const { grpc } = await servers.start(sluice, { bodyLimit: 1_024, grpc: { port: 0 } });
    const large = descriptor(["path", "/".repeat(2_000)]);

    const refused = await rejectionOf(
      clients.open(grpc).ask({ domain: "edge", descriptors: [large] }),
    );

    expect(refused).toMatchObject({ code: 8 });
  });

  it("answers pending requests when it closes, and no later ones", async () => {
    const sluice = sluices.open();
    sluice.bucket("edge", { rate: "1/h", burst: 5 });
    const closes: Promise<void>[] = [];
    const service = await servers.start(sluice, {
      grpc: {
        port: 0,
        draw({ domain }) {
          closes.push(service.server.close());
          return { bucket: domain };
        },
      },
    });
    const envoy = clients.open(service.grpc);
    const request = { domain: "edge", descriptors: [ANN] };

    const answer = await envoy.ask(request);
    await Promise.all(closes);

    expect(answer.overall_code).toBe("OK");
    expect(await rejectionOf(envoy.ask(request))).toMatchObject({ code: 14 });
  });

  it.each([
    [{ grpc: { port: 70_000 } }, "grpc.port"],
    [{ grpc: { unknown: "maybe" } }, "grpc.unknown"],
    [{ grpc: { draw: 5 } }, "grpc.draw"],
    [{ grpc: { prot: 1 } }, "grpc.prot"],
    [{ grpc: {}, socket: "/run/x.sock", host: "0.0.0.0", insecureLocal: true }, "insecureLocal"],
  ])("refuses %j by the name of the option", async (options, option) => {
    const refused = await rejectionOf(
      createServer(sluices.open(), { insecureLocal: true, ...(options as object) }),
    );

    expect(refused).toMatchObject({ code: "ERR_INVALID_OPTION", option });
  });

  it("says of a port that is taken that it is", async () => {
    const sluice = sluices.open();
    const { grpc } = await servers.start(sluice, { grpc: { port: 0 } });
    const port = Number(grpc.split(":").at(-1));

    await expect(servers.start(sluice, { grpc: { port } })).rejects.toThrow("EADDRINUSE");
  });
});

it("sluice serve --grpc says where it listens, answers, and ends on SIGTERM", async () => {
  await sluices.open().bucket("edge", { rate: "1/h", burst: 2 }).draw();
  const server = processes.start("src/cli/main.ts", {
    args: ["--prefix", sluices.prefix(), "serve", "--port=0", "--grpc=0", "--insecure-local"],
    env: { REDIS_URL: inject("redisUrl") },
  });
  await waitUntil(() => /^grpc \S+$/m.test(server.stdout), "it says where gRPC is");
  const envoy = clients.open(/^grpc (\S+)$/m.exec(server.stdout)![1]!);

  const codes = [];
  for (let call = 0; call < 2; call++) {
    const { overall_code } = await envoy.ask({ domain: "edge", descriptors: [ANN] });
    codes.push(overall_code);
  }
  server.signal("SIGTERM");

  expect(codes).toEqual(["OK", "OVER_LIMIT"]);
  expect(await server.ended).toBe(0);
  expect(server.stderr).toBe("");
});
