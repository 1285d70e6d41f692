import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Validator } from "@seriousme/openapi-schema-validator";
import { pino } from "pino";
import type { FastifyInstance } from "fastify";
import { describe, expect, it, onTestFinished } from "vitest";
import { InvalidOptionError } from "sluice";
import { createServer, type ServerOptions } from "sluice/server";
import { deferred } from "../../support/async/deferred.ts";
import { makeCertificate } from "../../support/servers/certificate.ts";
import { ACT, ask, CALL, openServers, VIEW } from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = openServers();

const VIEWED = { config: { needs: "view" } } as const;

describe("createServer", () => {
  it.each<[string, ServerOptions, string]>([
    ["neither tokens nor insecureLocal", {}, "insecureLocal: true"],
    ["no tokens", { tokens: [] }, "give tokens"],
    ["insecureLocal for all", { insecureLocal: true, host: "0.0.0.0" }, "loopback only"],
    ["insecureLocal on a name", { insecureLocal: true, host: "127.evil.example" }, "loopback only"],
    [
      "tokens beside insecureLocal",
      { insecureLocal: true, tokens: [{ token: ACT, role: "act" }] },
      "leave out the tokens",
    ],
    ["a short token", { tokens: [{ token: "abc", role: "act" }] }, "at least 8"],
    [
      "an unknown role",
      { tokens: [{ token: ACT, role: "admin" as "act" }] },
      '"view", "act", "call" or',
    ],
    ["an unknown option", { insecureLokal: true } as object, "did you mean insecureLocal?"],
    ["a port too large", { port: 70_000, insecureLocal: true }, "65535"],
  ])("refuses %s, and says what to do", async (_what, options, remedy) => {
    const refused = await createServer(sluices.open(), options).catch((error: unknown) => error);

    expect(refused).toBeInstanceOf(InvalidOptionError);
    expect(String(refused)).toContain(remedy);
    expect(String(refused)).not.toContain(ACT);
  });

  it("does not start with a custom route whose schema is wrong", async () => {
    const options = { insecureLocal: true, port: 0, logger: false } as const;
    const server = await createServer(sluices.open(), options);
    const schema = { body: { type: "no such type" } };
    server.app.post("/own", { config: { needs: "act" }, schema }, () => "done");

    await expect(server.listen()).rejects.toThrow("Failed building the validation schema");

    await server.close();
  });

  it("does not start with a route that says not what it needs", async () => {
    const server = await createServer(sluices.open(), {
      insecureLocal: true,
      port: 0,
      logger: false,
    });
    (server.app as unknown as FastifyInstance).get("/open", () => "for everybody?");

    await expect(server.listen()).rejects.toThrow("the route GET /open");

    await server.close();
  });

  it("lets each role do what it is for, and no more", async () => {
    const { server, url } = await openWith((app) => {
      for (const needs of ["view", "act", "draw", "enqueue"] as const) {
        app.get(`/${needs}`, { config: { needs } }, () => needs);
      }
    });
    const allowed = async (token?: string): Promise<number[]> =>
      Promise.all(
        ["view", "act", "draw", "enqueue"].map(
          async (path) => (await ask(`${url}/${path}`, { ...(token && { token }) })).status,
        ),
      );

    expect(server.app.server.listening).toBe(true);
    expect(await allowed()).toEqual([401, 401, 401, 401]);
    expect(await allowed("some-other-token")).toEqual([401, 401, 401, 401]);
    expect(await allowed(VIEW)).toEqual([200, 403, 403, 403]);
    expect(await allowed(CALL)).toEqual([403, 403, 200, 200]);
    expect(await allowed(ACT)).toEqual([200, 200, 200, 200]);
  });

  it("takes a token that was read from a file, with the line break at its end", async () => {
    const { url } = await openWith((app) => app.get("/seen", VIEWED, () => "seen"), {
      tokens: [{ token: ` ${VIEW}\r\n`, role: "view" }],
    });

    expect((await ask(`${url}/seen`, { token: VIEW })).status).toBe(200);
    const signIn = { body: { token: `${VIEW}\n` } };
    expect((await ask(`${url}/api/v1/session`, signIn)).json).toMatchObject({ role: "view" });
  });

  it("keeps a token within its buckets and queues", async () => {
    const tokens = [{ token: VIEW, role: "view", buckets: ["stripe"], queues: [] }] as const;
    const { url } = await openWith(
      (app) => {
        app.get("/b/:name", { config: { needs: "view", bucket: "name" } }, () => "seen");
        app.get("/q/:name", { config: { needs: "view", queue: "name" } }, () => "seen");
      },
      { tokens },
    );

    expect((await ask(`${url}/b/stripe`, { token: VIEW })).status).toBe(200);
    expect((await ask(`${url}/b/str%69pe`, { token: VIEW })).status).toBe(200);
    const other = await ask(`${url}/b/openai`, { token: VIEW });
    expect(other.json).toMatchObject({
      status: 403,
      detail: 'The token is not for bucket "openai".',
    });
    expect((await ask(`${url}/q/stripe`, { token: VIEW })).status).toBe(403);
  });

  it("refuses what a page of another site sends, and another name of this machine", async () => {
    const { url } = await openWith(
      (app) => app.post("/change", { config: { needs: "act" } }, () => "changed"),
      { tokens: undefined, insecureLocal: true },
    );
    const post = async (headers: Record<string, string>): Promise<number> =>
      (await ask(`${url}/change`, { method: "POST", headers })).status;

    expect(await post({})).toBe(200);
    expect(await post({ origin: url, "sec-fetch-site": "same-origin" })).toBe(200);
    expect(await post({ "sec-fetch-site": "cross-site" })).toBe(403);
    expect(await post({ "sec-fetch-site": "same-site" })).toBe(403);
    expect(await post({ origin: "http://evil.example" })).toBe(403);
    expect(await post({ origin: "null" })).toBe(403);
    expect((await ask(`${url}/healthz`, { headers: { host: "evil.example:3010" } })).status).toBe(
      403,
    );
    expect(await post({ "content-type": "text/plain" })).toBe(415);
    const form = { "content-type": "application/x-www-form-urlencoded" };
    const sent = await ask(`${url}/change`, { method: "POST", body: "a=1", headers: form });
    expect(sent.status).toBe(415);
  });

  it("answers every error as problem+json, and reveals no internals", async () => {
    const { url } = await openWith((app) => {
      app.get("/broken", VIEWED, () => {
        throw new Error("password=hunter2");
      });
      app.post("/echo", { config: { needs: "act" } }, ({ body }) => body);
    });

    const broken = await ask(`${url}/broken`, { token: VIEW });
    const missing = await ask(`${url}/nowhere`);
    const bad = await ask(`${url}/echo`, { token: ACT, body: "{" });
    const large = await ask(`${url}/echo`, { token: ACT, body: { text: "x".repeat(1_048_577) } });

    expect(broken.json).toMatchObject({ status: 500, code: "ERR_INTERNAL" });
    expect(broken.text).not.toContain("hunter2");
    expect(missing.json).toMatchObject({ status: 404, detail: "There is no GET /nowhere." });
    expect(bad.status).toBe(400);
    expect(large.json).toMatchObject({ status: 413, title: "Payload Too Large" });
    for (const { headers } of [broken, missing, bad, large]) {
      expect(headers["content-type"]).toMatch(/^application\/problem\+json/);
      expect(headers["content-security-policy"]).toContain("default-src 'none'");
    }
  });

  it("logs requests without their credentials, and no health checks", async () => {
    const lines: string[] = [];
    const logger = pino({}, { write: (line: string) => void lines.push(line) });
    const { url } = await openWith((app) => app.get("/seen", VIEWED, () => "seen"), { logger });

    await ask(`${url}/healthz`);
    await ask(`${url}/readyz`);
    await ask(`${url}/seen?token=${ACT}`, {
      token: VIEW,
      headers: { cookie: "sluice_session=abc" },
    });
    await ask(`${url}/seen`, { token: "a-wrong-token" });

    const log = lines.join("");
    expect(lines.filter((line) => line.includes('"msg":"request"'))).toHaveLength(2);
    expect(log).toContain('"path":"/seen","status":200');
    for (const secret of [VIEW, ACT, "a-wrong-token", "sluice_session"]) {
      expect(log).not.toContain(secret);
    }
  });

  it("is ready while Redis answers, and else says why not", async () => {
    const { url } = await servers.open(sluices.open());
    const away = sluices.open({ redis: "redis://127.0.0.1:1", storeTimeoutMs: 200, logger: QUIET });
    const { url: cannot } = await servers.open(away);

    expect((await ask(`${url}/healthz`)).json).toEqual({ ok: true });
    expect((await ask(`${url}/readyz`)).json).toEqual({ ready: true, reasons: [] });
    const not = await ask(`${cannot}/readyz`);
    expect(not).toMatchObject({
      status: 503,
      json: { ready: false, reasons: [{ what: "redis" }] },
    });
    expect((await ask(`${cannot}/healthz`)).status).toBe(200);
  });

  it("listens on a Unix socket, also where a process that died left one", async () => {
    const folder = await mkdtemp(join(tmpdir(), "sluice-server-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    const socket = join(folder, "sluice.sock");
    await writeFile(join(folder, "file"), "precious");

    const { url } = await servers.open(sluices.open(), { socket, insecureLocal: true });

    expect(url).toBe(`unix:${socket}`);
    expect((await ask("http://sluice/healthz", { socketPath: socket })).json).toEqual({ ok: true });
    const inUse = servers.open(sluices.open(), { socket, insecureLocal: true });
    await expect(inUse).rejects.toThrow("EADDRINUSE");
    const overFile = servers.open(sluices.open(), {
      socket: join(folder, "file"),
      insecureLocal: true,
    });
    await expect(overFile).rejects.toThrow("EADDRINUSE");
  });

  it("serves over TLS", async () => {
    const certificate = await makeCertificate();
    onTestFinished(() => certificate.remove());
    const cert = certificate.pem;
    const key = await readFile(certificate.keyFile, "utf8");

    const { url } = await servers.open(sluices.open(), { tls: { key, cert } });

    expect(url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
    const asking = httpsRequest(`${url}/healthz`, { ca: cert, agent: false }).end();
    const [answer] = (await once(asking, "response")) as [IncomingMessage];
    expect(answer.statusCode).toBe(200);
    expect(answer.headers["strict-transport-security"]).toContain("max-age=");
    answer.resume();
  });

  it("takes a cookie instead of the token that it was given for, and no other", async () => {
    const { url } = await openWith((app) =>
      app.post("/change", { config: { needs: "act" } }, () => "changed"),
    );
    const session = `${url}/api/v1/session`;

    const wrong = await ask(session, { body: { token: "some-other-token" } });
    const signedIn = await ask(session, { body: { token: ACT } });
    const viewing = await ask(session, { body: { token: VIEW } });

    expect(wrong).toMatchObject({ status: 401 });
    expect(wrong.headers["set-cookie"]).toBeUndefined();
    const [set = ""] = signedIn.headers["set-cookie"] as string[];
    expect(set).toMatch(/; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/);
    expect(set).not.toContain(ACT);
    const [cookie = ""] = set.split(";");
    const [view = ""] = (viewing.headers["set-cookie"] as string[])[0]!.split(";");
    const post = async (headers: Record<string, string>): Promise<number> =>
      (await ask(`${url}/change`, { method: "POST", headers })).status;
    expect((await ask(session, { headers: { cookie } })).json).toMatchObject({ role: "act" });
    expect(await post({ cookie, origin: url })).toBe(200);
    expect(await post({ cookie, origin: "http://evil.example" })).toBe(403);
    expect(await post({ cookie: view })).toBe(403);
    const [until = "", signature = ""] = cookie.split("=")[1]!.split(".");
    const later = `sluice_session=${Number(until) + 1}.${signature}`;
    expect(await post({ cookie: later })).toBe(401);
    expect(await post({ cookie: `sluice_session=1000000000000.${signature}` })).toBe(401);
    const out = await ask(session, { method: "DELETE", headers: { cookie } });
    expect(out).toMatchObject({ status: 204 });
    expect(out.headers["set-cookie"]).toEqual([expect.stringContaining("Max-Age=0")]);
  });

  it("describes its routes as OpenAPI 3.1", async () => {
    const { url } = await servers.open(sluices.open());

    const { json } = await ask(`${url}/api/openapi.json`, { token: VIEW });

    expect(json.openapi).toBe("3.1.0");
    expect(Object.keys(json.paths)).toContain("/readyz");
    expect((await new Validator().validate(json)).valid).toBe(true);
  });

  it("lets a request end that is under way when it closes", async () => {
    const { server, url, begun, go } = await openSlow();
    const slow = ask(`${url}/slow`, { token: VIEW });
    await begun.promise;

    const closing = server.close();
    go.resolve();

    expect((await slow).text).toBe("done");
    await closing;
    await expect(ask(`${url}/healthz`)).rejects.toThrow("ECONNREFUSED");
  });

  it("closes connections without a request, and does not cut off requests", async () => {
    const { server, url, begun, go } = await openSlow();
    const unused = connect(Number(new URL(url).port), "127.0.0.1").resume();
    const slow = ask(`${url}/slow`, { token: VIEW });
    await begun.promise;

    const closing = server.close();
    await once(unused, "close");
    go.resolve();

    expect((await slow).text).toBe("done");
    await closing;
  });
});

const QUIET = { warn() {}, error() {} };

type Routes = (app: Awaited<ReturnType<typeof createServer>>["app"]) => unknown;

/** A server with routes of the test's own. */
async function openWith(add: Routes, options: ServerOptions = {}) {
  const tokens = options.insecureLocal === true ? {} : { tokens: ALL };
  const server = await createServer(sluices.open(), {
    port: 0,
    logger: false,
    ...tokens,
    ...options,
  });
  onTestFinished(() => server.close());
  add(server.app);
  return { server, url: (await server.listen()).url };
}

/** A server with a route that answers once `go` is resolved. */
async function openSlow() {
  const [begun, go] = [deferred(), deferred()];
  const opened = await openWith((app) =>
    app.get("/slow", VIEWED, async () => {
      begun.resolve();
      await go.promise;
      return "done";
    }),
  );
  return { ...opened, begun, go };
}

const ALL = [
  { token: VIEW, role: "view" },
  { token: ACT, role: "act" },
  { token: CALL, role: "call" },
] as const;
