import { connect } from "node:net";
import { expect, it } from "vitest";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { services } from "../../support/server/service.ts";

const sluices = realSluices();
const servers = services();

const JSON_BODY = "Content-Type: application/json\r\n";
const TRY = "/v1/buckets/api/try";

/** What a server answers to these bytes until it closes the connection. */
function send(url: string, bytes: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    let answer = "";
    socket.on("data", (chunk: Buffer) => (answer += chunk.toString("latin1")));
    socket.on("error", reject);
    socket.on("close", () => resolve(answer));
    socket.write(Buffer.from(bytes, "latin1"));
  });
}

function post(path: string, rest = "\r\n"): string {
  return `POST ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${rest}`;
}

it.each([
  ["bytes that are no HTTP", "\x16\x03\x01\x02\x00\x01\r\n\r\n", 400],
  ["a method that there is not", `BREW ${TRY} HTTP/1.1\r\n\r\n`, 400],
  ["two lengths", post(TRY, `${JSON_BODY}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x`), 400],
  [
    "a length beside chunks",
    post(TRY, `${JSON_BODY}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`),
    400,
  ],
  ["a header of two lines", post(TRY, "X-A: a\r\n b\r\n\r\n"), 400],
  ["headers without an end", post(TRY, `X-A: ${"x".repeat(20_000)}\r\n\r\n`), 431],
  ["a path with half a character", post("/v1/buckets/%ff/try"), 400],
  ["a path with a lone percent sign", post("/v1/buckets/%/try"), 400],
  ["a name of 10,000 bytes", post(`/v1/buckets/${"x".repeat(10_000)}/try`), 414],
  ["no such route", post("/v1/nothing"), 404],
  ["a body that is no JSON", post(TRY, `${JSON_BODY}Content-Length: 1\r\n\r\n{`), 400],
  ["a body of another type", post(TRY, "Content-Type: a/b\r\nContent-Length: 1\r\n\r\n{"), 415],
  ["a body beyond the limit", post(TRY, `${JSON_BODY}Content-Length: 9000\r\n\r\n{`), 413],
])("refuses %s as a problem", async (_what, bytes, status) => {
  const { url } = await servers.start(sluices.open(), { bodyLimit: 8_000 });

  const answer = await send(url, bytes);

  const [head = "", body = ""] = answer.split("\r\n\r\n");
  expect(head).toContain(`HTTP/1.1 ${status} `);
  expect(head.toLowerCase()).toContain("content-type: application/problem+json");
  expect(JSON.parse(body)).toMatchObject({
    status,
    code: expect.stringMatching(/^ERR_(?!HTTP)/) as string,
  });
});

it("refuses data that is nested too deeply in the same words, with an Idempotency-Key", async () => {
  const sluice = sluices.open();
  sluice.queue("mail", { bucket: sluice.bucket("mail", { rate: "1/s" }) });
  const service = await servers.start(sluice);
  const body = `{"data":${"[".repeat(10_000)}${"]".repeat(10_000)}}`;

  const plain = await service.post("/v1/queues/mail/jobs", body);
  const once = await service.post("/v1/queues/mail/jobs", body, { "idempotency-key": "k" });

  expect(plain).toMatchObject({ status: 400, json: { code: "ERR_INVALID_OPTION" } });
  expect(plain.json.option).toBe("data");
  expect(once).toMatchObject({ status: 400, json: plain.json });
});

it.each([
  ["__proto__", '{"data":{"__proto__":{"a":1}}}'],
  ["constructor.prototype", '{"data":{"constructor":{"prototype":{"a":1}}}}'],
])("refuses %s in a body, and in lines by the number of the line", async (_what, job) => {
  const sluice = sluices.open();
  const queue = sluice.queue("mail", { bucket: sluice.bucket("mail", { rate: "1/s" }) });
  const service = await servers.start(sluice);
  const lines = { "content-type": "application/x-ndjson" };

  const one = await service.post("/v1/queues/mail/jobs", job);
  const many = await service.post("/v1/queues/mail/jobs", `{"data":1}\n${job}`, lines);

  expect(one).toMatchObject({ status: 400, json: { code: "ERR_BAD_REQUEST" } });
  expect(many).toMatchObject({ status: 400, json: { code: "ERR_BAD_REQUEST" } });
  expect(many.json.detail).toContain("Line 2");
  expect((await queue.counts()).waiting).toBe(0);
});

it("takes no body for one that was left out, whatever its type is said to be", async () => {
  const sluice = sluices.open();
  sluice.bucket("api", { rate: "1/s", burst: 5 });
  const { url } = await servers.start(sluice);
  const types = ["application/json", "application/json; charset=utf-8"];

  const answers = await Promise.all(
    types.map((type) => send(url, post(TRY, `Content-Type: ${type}\r\nContent-Length: 0\r\n\r\n`))),
  );

  for (const answer of answers) expect(answer).toContain("HTTP/1.1 200 ");
});
