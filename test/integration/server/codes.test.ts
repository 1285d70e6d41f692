import { describe, expect, it, onTestFinished } from "vitest";
import { createServer } from "sluice/server";
import { realSluices } from "../../support/setup/real-sluice.ts";
import {
  ACT,
  ask,
  CALL,
  openServers,
  VIEW,
  type Asking,
} from "../../support/server/open-server.ts";

const sluices = realSluices();
const servers = openServers();

async function open() {
  const sluice = sluices.open();
  const bucket = sluice.bucket("api", { rate: "1/h" });
  sluice.queue("mail", { bucket });
  return servers.open(sluice, { forward: { up: { to: "http://127.0.0.1:1", bucket: "free" } } });
}

describe("an error over HTTP has a code of its own", () => {
  it.each<readonly [string, string, Asking, number, string]>([
    ["no token", "/api/v1/buckets", {}, 401, "ERR_UNAUTHENTICATED"],
    ["a wrong token", "/api/v1/buckets", { token: "wrong-token" }, 401, "ERR_UNAUTHENTICATED"],
    [
      "a wrong sign-in",
      "/api/v1/session",
      { body: { token: "wrong" } },
      401,
      "ERR_UNAUTHENTICATED",
    ],
    ["a role that may not", "/v1/buckets/api/try", { token: VIEW, body: {} }, 403, "ERR_FORBIDDEN"],
    [
      "a missing bucket",
      "/v1/buckets/no/try",
      { token: CALL, body: {} },
      404,
      "ERR_BUCKET_MISSING",
    ],
    ["a bucket not known", "/api/v1/buckets/no", { token: VIEW }, 404, "ERR_BUCKET_MISSING"],
    [
      "a missing queue",
      "/v1/queues/no/jobs",
      { token: CALL, body: { data: 1 } },
      404,
      "ERR_QUEUE_MISSING",
    ],
    ["a missing job", "/v1/queues/mail/jobs/9", { token: CALL }, 404, "ERR_JOB_MISSING"],
    ["a missing sender", "/api/v1/endpoints/no", { token: VIEW }, 404, "ERR_SENDER_MISSING"],
    ["no slot", "/v1/slots/no/release", { token: CALL, body: {} }, 404, "ERR_SLOT_MISSING"],
    ["no route", "/nowhere", { token: ACT }, 404, "ERR_ROUTE_MISSING"],
    ["no JSON", "/v1/draw", { token: CALL, body: "{" }, 400, "ERR_BAD_REQUEST"],
    [
      "a form",
      "/v1/draw",
      { token: CALL, body: "a=1", headers: { "content-type": "text/plain" } },
      415,
      "ERR_MEDIA_TYPE",
    ],
    [
      "a long body",
      "/v1/draw",
      { token: CALL, body: " ".repeat(2_000_000) },
      413,
      "ERR_BODY_TOO_LARGE",
    ],
  ])("%s", async (_what, path, asking, status, code) => {
    const { url } = await open();

    const answer = await ask(`${url}${path}`, asking);

    expect(answer.status).toBe(status);
    expect(answer.json).toMatchObject({ status, code });
  });

  it("a full bucket, and an Idempotency-Key that was used", async () => {
    const { url } = await open();
    const attempt = { token: CALL, body: {} };
    const headers = { "idempotency-key": "k" };
    await ask(`${url}/v1/buckets/api/try`, attempt);
    await ask(`${url}/v1/queues/mail/jobs`, { token: CALL, headers, body: { data: 1 } });

    const full = await ask(`${url}/v1/buckets/api/try`, attempt);
    const used = await ask(`${url}/v1/queues/mail/jobs`, {
      token: CALL,
      headers,
      body: { data: 2 },
    });

    expect(full).toMatchObject({ status: 429, json: { code: "ERR_NO_ROOM", limitedBy: "1/h" } });
    expect(used).toMatchObject({ status: 422, json: { code: "ERR_IDEMPOTENCY_KEY_USED" } });
  });
});

describe("a method that a path does not have", () => {
  it.each([
    ["GET", "/v1/buckets/api/draw", "POST"],
    ["DELETE", "/v1/slots/some-id/settle", "POST"],
    ["POST", "/api/v1/buckets", "GET, HEAD"],
    ["PUT", "/api/v1/session", "DELETE, GET, HEAD, POST"],
    ["DELETE", "/healthz", "GET, HEAD"],
    ["POST", "/", "GET, HEAD"],
  ])("is 405: %s %s", async (method, path, allowed) => {
    const { url } = await open();

    const answer = await ask(`${url}${path}`, { method, token: ACT });

    expect(answer).toMatchObject({ status: 405, json: { code: "ERR_METHOD_NOT_ALLOWED" } });
    expect(answer.headers["allow"]).toBe(allowed);
  });
});

describe("an unknown field of a body is named with the nearest", () => {
  it.each([
    ["/v1/buckets/api/draw", { maxWait: 5 }, "maxWait", "maxWaitMs"],
    ["/v1/queues/mail/jobs", { dat: 5 }, "dat", "data"],
    ["/v1/queues/mail/jobs", { data: 5, dely: 5 }, "dely", "delayMs"],
    ["/v1/queues/mail/jobs", { data: 5, prio: 5 }, "prio", "priority"],
    ["/v1/slots/some-id/settle", { costs: 5 }, "costs", "cost"],
    ["/v1/draw", { draw: [] }, "draw", "draws"],
    ["/v1/draw", { draws: [{ buckt: "api" }] }, "draws.0.buckt", "bucket"],
    ["/api/v1/session", { tokne: "x" }, "tokne", "token"],
    ["/api/v1/buckets/api/configure", { polcy: { rate: "1/s" } }, "polcy", "policy"],
    ["/api/v1/buckets/api/pause", { formMs: 5 }, "formMs", "forMs"],
    ["/api/v1/queues/mail/set", { maxBacklg: 5 }, "maxBacklg", "maxBacklog"],
  ])("of %s: %j", async (path, body, option, near) => {
    const { url } = await open();

    const answer = await ask(`${url}${path}`, { token: ACT, body });

    expect(answer.status).toBe(400);
    expect(answer.json).toMatchObject({ code: "ERR_INVALID_OPTION", option });
    expect(answer.json.remedy).toContain(`did you mean ${near}?`);
  });

  it("where a body is no object, says so", async () => {
    const { url } = await open();

    const answer = await ask(`${url}/v1/buckets/api/draw`, { token: ACT, body: [1] });

    expect(answer.json).toMatchObject({ option: "body", remedy: "give an object" });
  });
});

describe("an unknown parameter of a query", () => {
  it.each([
    ["/v1/buckets/api/draw", {}],
    ["/v1/buckets/api/try", {}],
    ["/v1/draw", { draws: [{ bucket: "api" }] }],
    ["/v1/slots/some-id/release", {}],
    ["/v1/queues/mail/jobs", { data: 1 }],
    ["/v1/queues/mail/jobs/1/cancel", {}],
    ["/api/v1/buckets/api/pause", {}],
    ["/api/v1/queues/mail/pause", {}],
    ["/api/v1/buckets/api", undefined],
    ["/api/v1/overview", undefined],
    ["/api/v1/session", undefined],
  ])("is refused where there is none: %s %j", async (path, body) => {
    const { url } = await open();

    const answer = await ask(`${url}${path}?zzz=1`, { token: ACT, body });

    expect(answer.status).toBe(400);
    expect(answer.json).toMatchObject({ code: "ERR_INVALID_OPTION", option: "zzz" });
    expect(answer.text).toContain("this request takes none");
  });

  it.each(["/metrics", "/healthz", "/readyz", "/", "/api/openapi.json"])(
    "is ignored at %s, which scrapers and browsers ask",
    async (path) => {
      const { url } = await open();

      expect((await ask(`${url}${path}?zzz=1`, { token: ACT })).status).toBe(200);
    },
  );

  it("is ignored by a forward and by routes of a program", async () => {
    const sluice = sluices.open();
    sluice.bucket("free", { rate: "100/s" });
    const forward = { up: { at: "/v1", to: "http://127.0.0.1:1", bucket: "free" } };
    const server = await createServer(sluice, {
      port: 0,
      insecureLocal: true,
      logger: false,
      forward,
    });
    onTestFinished(() => server.close());
    server.app.get("/api/v1/mine", { config: { needs: "view" } }, () => "mine");
    const { url } = await server.listen();

    const own = await ask(`${url}/api/v1/mine?zzz=1`);
    const forwarded = await ask(`${url}/v1/x?zzz=1`);

    expect([own.status, forwarded.status]).toEqual([200, 502]);
  });
});

describe("a replay of a job that does not exist", () => {
  it.each(["/api/v1/queues/mail/replay", "/v1/queues/mail/dead-letters/replay"])(
    "is 404: %s",
    async (path) => {
      const { url } = await open();

      const answer = await ask(`${url}${path}`, { token: ACT, body: { id: "nope" } });

      expect(answer).toMatchObject({ status: 404, json: { code: "ERR_JOB_MISSING" } });
      expect(answer.text).toContain("nope");
    },
  );

  it.each(["/api/v1/queues/mail/replay", "/v1/queues/mail/dead-letters/replay"])(
    "replays none by a filter, or of a job that has not failed: %s",
    async (path) => {
      const { url } = await open();
      const delayed = { data: 1, delayMs: 60_000 };
      const { json: job } = await ask(`${url}/v1/queues/mail/jobs`, { token: ACT, body: delayed });

      const filtered = await ask(`${url}${path}`, { token: ACT, body: { reason: "no" } });
      const waiting = await ask(`${url}${path}`, { token: ACT, body: { id: job.id } });

      expect(filtered).toMatchObject({ status: 200, json: { replayed: 0 } });
      expect(waiting).toMatchObject({ status: 200, json: { replayed: 0 } });
    },
  );
});

it("a replay over /v1 names its jobs: no body is no choice, and an id stands alone", async () => {
  const { url } = await open();
  const path = `${url}/v1/queues/mail/dead-letters/replay`;

  const empty = await ask(path, { token: ACT, method: "POST" });
  const both = await ask(path, { token: ACT, body: { id: "7", reason: "x" } });

  expect(empty).toMatchObject({ status: 400 });
  expect(both).toMatchObject({ status: 400, json: { option: "id" } });
});

it("the OpenAPI description lists the codes", async () => {
  const { url } = await open();

  const { text } = await ask(`${url}/api/openapi.json`, { token: VIEW });

  expect(text).toContain('"ERR_BUCKET_MISSING"');
  expect(text).toContain('"ERR_NO_ROOM"');
  expect(text).not.toContain("ERR_HTTP");
});
