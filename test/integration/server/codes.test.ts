import { describe, expect, it } from "vitest";
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

it("the OpenAPI description lists the codes", async () => {
  const { url } = await open();

  const { text } = await ask(`${url}/api/openapi.json`, { token: VIEW });

  expect(text).toContain('"ERR_BUCKET_MISSING"');
  expect(text).toContain('"ERR_NO_ROOM"');
  expect(text).not.toContain("ERR_HTTP");
});
