import { describe, expect, it } from "vitest";
import { hiddenOf, redacted } from "../../../src/webhooks/delivery/redact.ts";

it.each([
  ["x-api-secret-token: hunter2", "x-api-secret-token: ***"],
  ['{"client_secret":"hunter2","a":1}', '{"client_secret":"***","a":1}'],
  ["proxy-authorization=hunter2", "proxy-authorization=***"],
  ["my_password = hunter2; b", "my_password = ***; b"],
  ["tokens are fine", "tokens are fine"],
])("of an answer that says %s, %s is kept", (answer, kept) => {
  expect(redacted(answer, [])).toBe(kept);
});

// Where the time grows with the square of the length, this takes minutes.
it.each([
  "a-",
  "-",
  "secre-",
  "toke ",
  "cookie",
  "bearer ",
  "token ",
  "v1,",
  "a:",
  "://",
  "@",
  " ",
])("an answer of nothing but %j takes no longer than others", (part) => {
  const answer = part.repeat(500_000 / part.length);

  expect(redacted(answer, ["no such secret"]).length).toBeGreaterThan(0);
});

const SECRET = 'sk_live_Äpfel "50%" & <Ω>/+key=9f8e7d\\end'.replace("Ω", "ÿ");
const base64 = (text: string): string => Buffer.from(text).toString("base64");
const hex = (bytes: Buffer, between: string = ""): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(between);
const entities = (text: string): string =>
  Array.from(text, (character) => `&#${character.codePointAt(0)!};`).join("");
const escapes = (text: string, how: (code: string) => string): string =>
  Array.from(text, (character) =>
    how(character.codePointAt(0)!.toString(16).padStart(4, "0")),
  ).join("");

/** How receivers repeat a header. */
const ECHOES: Readonly<Record<string, string | Buffer>> = {
  "as it is": `x-key: ${SECRET}`,
  "as Latin-1": Buffer.from(`x-key: ${SECRET}`, "latin1"),
  "as UTF-8 of UTF-8": Buffer.from(Buffer.from(SECRET).toString("latin1")),
  "as UTF-16": Buffer.from(SECRET, "utf16le"),
  "with replacements for what is no UTF-8": Buffer.from(SECRET, "latin1").toString("utf8"),
  "as JSON": JSON.stringify({ headers: { "x-key": SECRET } }),
  "as JSON in JSON": JSON.stringify({ request: JSON.stringify({ "x-key": SECRET }) }),
  "as JSON of ASCII alone": JSON.stringify(SECRET).replaceAll(/[^ -~]/g, (character) =>
    escapes(character, (code) => `\\u${code}`),
  ),
  "as PHP writes JSON": JSON.stringify(SECRET).replaceAll("/", String.raw`\/`),
  "as JSON with everything escaped": escapes(SECRET, (code) => `\\u${code.toUpperCase()}`),
  "as Python shows bytes": escapes(SECRET, (code) => `\\x${code.slice(2)}`),
  "as JavaScript shows code points": escapes(SECRET, (code) => `\\u{${code}}`),
  "as HTML": SECRET.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;"),
  "as HTML with other entities": SECRET.replaceAll("&", "&#38;").replaceAll('"', "&#x22;"),
  "as HTML with everything escaped": entities(SECRET),
  "as HTML in JSON": JSON.stringify(SECRET.replaceAll("&", "&amp;").replaceAll('"', "&#34;")),
  "in a query string": `key=${encodeURIComponent(SECRET)}`,
  "in a form": new URLSearchParams({ key: SECRET }).toString(),
  "in a query string of a query string": encodeURIComponent(encodeURIComponent(SECRET)),
  "with everything percent-encoded": escapes(SECRET, (code) => `%${code.slice(2)}`),
  "as base64": base64(SECRET),
  "as base64url": Buffer.from(SECRET).toString("base64url"),
  "as base64 of all headers": base64(JSON.stringify({ host: "a", "x-key": SECRET, accept: "*" })),
  "as base64 of Latin-1": Buffer.from(SECRET, "latin1").toString("base64"),
  "as base64 in lines": base64(`x-key: ${SECRET}`).replaceAll(/.{20}/g, "$&\r\n"),
  "as base64 behind a name": `body-${base64(SECRET)}`,
  "as base64 of base64": base64(base64(SECRET)),
  "as percent-encoded base64": encodeURIComponent(base64(SECRET)),
  "as hex": hex(Buffer.from(SECRET)),
  "as hex of capitals": hex(Buffer.from(SECRET)).toUpperCase(),
  "as a buffer is shown": `<Buffer ${hex(Buffer.from(SECRET), " ")}>`,
  "as hex with colons": hex(Buffer.from(SECRET), ":"),
  "as bytes in JSON": JSON.stringify(Buffer.from(SECRET)),
  "in capitals": SECRET.toUpperCase(),
  "in small letters": SECRET.toLowerCase(),
};

/** The parts of the secret that say something: none may be readable, in whatever form. */
const TELLING = ["sk_live", "9f8e7d", "key=9f", "ve_"];

describe("a secret that an endpoint repeats", () => {
  it.each(Object.entries(ECHOES))("is not kept %s", (_how, echo) => {
    const bytes = Buffer.concat([Buffer.from("seen: "), Buffer.from(echo), Buffer.from(" done")]);

    const kept = redacted(bytes, hiddenOf({ "x-key": SECRET }, {}));

    expect(kept).toMatch(/^seen: .*done$/s);
    for (const form of formsOf(kept)) {
      for (const part of TELLING) expect(form.toLowerCase()).not.toContain(part);
    }
  });

  it.each([
    ["the answer ends in the middle of it", (text: string) => text.slice(0, -20)],
    [
      "the answer ends after its first characters",
      (text: string) => text.slice(0, "seen ".length + 4),
    ],
    ["it is cut and goes on in other words", (text: string) => `${text.slice(0, -20)}… and so on`],
    ["its beginning is cut", (text: string) => text.slice(15)],
  ])("is not kept where %s", (_what, cut) => {
    const secret = "q7Zp4Wm9Xk2Vb8Nc5Rt1Ls6Hd3Jf0Ga";

    const kept = redacted(cut(`seen ${secret}`), [secret]);

    for (let at = 0; at + 4 <= secret.length; at++) {
      expect(kept).not.toContain(secret.slice(at, at + 4));
    }
  });

  it("is not kept of a name and a password in base64, in whatever form", () => {
    const hidden = hiddenOf({ authorization: `Basic ${base64("acme:hunter2-of-acme")}` }, {});

    expect(redacted('{"user":"acme","pass":"hunter2-of-acme"}', hidden)).not.toContain("hunter2");
  });

  it("is not kept of a signature, and its time and the id of the message are", () => {
    const signature = {
      "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
      "webhook-timestamp": "1614265330",
      "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    };
    const echo = new URLSearchParams(signature).toString();

    const kept = redacted(echo, hiddenOf({}, signature));

    expect(kept).toContain("webhook-id=msg_p5jXN8AQM9LWM0D4loKWxJek&webhook-timestamp=1614265330");
    expect(kept).not.toMatch(/g0hM9|OTPJTG|LVlNI/);
  });
});

it.each([
  '{"received":true,"id":"evt_1MqqbKLt4dXK03v5qaIbiNCC"}',
  "<!doctype html><html><body><h1>Bad Request</h1></body></html>",
  "Größe: 5 µm, 12, 13, 14, 15, 16, 17 and 0a 0b 0c 0d 0e 0f 10",
])("an answer that repeats nothing is kept as it is: %s", (answer) => {
  const headers = { authorization: "Bearer q7Zp4Wm9Xk2Vb8Nc5Rt1Ls6Hd3Jf0Ga", accept: "text/html" };

  expect(redacted(answer, hiddenOf(headers, {}))).toBe(answer);
});

/** What somebody who reads the log may make of it. */
function formsOf(text: string): string[] {
  const decoded = [text];
  for (const form of decoded) {
    if (decoded.length > 200) break;
    const runs = form.match(/[\w+/-]{8,}/g) ?? [];
    for (const run of runs) {
      for (const at of [0, 1, 2, 3]) decoded.push(Buffer.from(run.slice(at), "base64").toString());
      decoded.push(Buffer.from(run, "hex").toString());
    }
    decoded.push(
      form.replaceAll(
        /%([0-9a-f]{2})|\\u\{?00([0-9a-f]{2})\}?|\\x([0-9a-f]{2})/gi,
        (_all, ...codes) =>
          String.fromCharCode(
            Number.parseInt(codes.find((code) => code !== undefined) as string, 16),
          ),
      ),
    );
  }
  return decoded;
}
