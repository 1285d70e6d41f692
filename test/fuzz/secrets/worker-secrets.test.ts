import { request } from "node:http";
import OpenAI from "openai";
import Stripe from "stripe";
import { describe, expect, it } from "vitest";
import { createWorkerLog } from "../../../workers/shared/log.ts";

/** The log is told of none of them: it has to know them by where they stand. */
const SECRET = "hush-0123456789";
const BEARER = `Bearer ${SECRET}`;
const URL_WITH_PASSWORD = `https://user:${SECRET}@api.example.com/v1`;

function written(value: object, message = "Told."): string {
  let text = "";
  const log = createWorkerLog("trace", [], { write: (line) => void (text += line) });
  log.warn(value, message);
  return text;
}

/** The shape that Axios throws. */
function axiosError(): Error {
  const headers = { Authorization: BEARER, "X-Api-Key": SECRET };
  const config = { url: URL_WITH_PASSWORD, headers, auth: { username: "u", password: SECRET } };
  const sent = { _header: `POST /v1 HTTP/1.1\r\nAuthorization: ${BEARER}\r\nHost: a\r\n\r\n` };
  const response = {
    status: 401,
    headers: { "set-cookie": [`sid=${SECRET}`] },
    config,
    request: sent,
  };
  return Object.assign(new Error("Request failed with status code 401"), {
    name: "AxiosError",
    isAxiosError: true,
    config,
    request: sent,
    response,
  });
}

/** The shape that undici throws, with the raw headers of the request. */
function undiciError(): Error {
  const headers = ["content-type", "application/json", "authorization", BEARER];
  const cause = Object.assign(new Error("other side closed"), { code: "UND_ERR_SOCKET" });
  return Object.assign(new TypeError("fetch failed", { cause }), { opts: { headers } });
}

function realRequest(): object {
  const sent = request("http://127.0.0.1:1/", { headers: { authorization: BEARER } });
  sent.on("error", () => undefined).destroy();
  return { headers: sent.getHeaders(), raw: sent.getRawHeaderNames() };
}

const openAiError = new OpenAI.AuthenticationError(
  401,
  {},
  "no",
  new Headers({ authorization: BEARER }),
);
const stripeError = new Stripe.errors.StripeAuthenticationError({
  message: "no",
  type: "api_error",
  headers: { authorization: BEARER, "stripe-signature": SECRET },
});

const objects: readonly (readonly [string, object])[] = [
  ["an error of Axios", axiosError()],
  ["an error of undici", undiciError()],
  ["an error of OpenAI", openAiError],
  ["an error of Stripe", stripeError],
  ["a client of OpenAI", new OpenAI({ apiKey: SECRET })],
  ["a request of Node", realRequest()],
  ["the settings of a webhook", { webhook_secret: SECRET, secret: SECRET, signingSecret: "" }],
  ["tokens", { access_token: SECRET, refresh_token: SECRET }],
  ["an address", { url: URL_WITH_PASSWORD, redis: `rediss://:${SECRET}@host:6379/1` }],
];

describe("a worker's log hides what it does not know of", () => {
  it.each(objects)("in %s, wherever it is logged", (_what, object) => {
    const texts = [
      written({ err: object }),
      written({ error: object }),
      written({ cause: object }),
      written({ deep: { in: [{ it: { ...object } }] } }),
      written(object),
    ];

    for (const text of texts) {
      expect(text.includes('"level"')).toBe(true);
      expect(text.includes(SECRET)).toBe(false);
      // What is left is JSON still.
      for (const line of text.trim().split("\n")) JSON.parse(line);
    }
  });

  it.each([
    `the call of ${URL_WITH_PASSWORD} failed`,
    `sent Authorization: ${BEARER}`,
    `proxy-authorization: Basic ${SECRET}\r\nhost: a`,
  ])("in the message %#", (message) => {
    const text = written({ error: new Error(message) }, message);

    expect(text).toContain("[redacted]");
    expect(text).not.toContain(SECRET);
  });

  it("and nothing else", () => {
    const facts = {
      job: "1",
      tokens: 812,
      cost: { tokens: 5 },
      url: "https://a.example/b@c",
      key: "acme",
    };

    expect(written(facts)).not.toContain("[redacted]");
  });
});
