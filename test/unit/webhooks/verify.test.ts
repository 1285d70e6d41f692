import { Webhook } from "standardwebhooks";
import { Webhooks as GithubWebhooks } from "@octokit/webhooks";
import Stripe from "stripe";
import { describe, expect, it } from "vitest";
import {
  createKeyPair,
  createSecret,
  publicKeyOf,
  sign,
  verify,
  type ReceivedHeaders,
  type SignOptions,
  type VerifyOptions,
} from "sluice/webhooks";

const BODY = JSON.stringify({ type: "invoice.paid", data: { amount: 1_200 } });
const secret = createSecret();

function received(changes: Partial<SignOptions> = {}): VerifyOptions {
  const headers = sign({ id: "msg_1", body: BODY, secret, ...changes });
  return { body: BODY, headers, secret, signature: changes.signature };
}

function reasonOf(options: VerifyOptions): unknown {
  try {
    verify(options);
  } catch (error) {
    return (error as { readonly reason?: unknown }).reason;
  }
  return "verified";
}

describe("verify()", () => {
  it("returns what a webhook says, its id, and when it was sent", () => {
    const at = new Date(Math.floor(Date.now() / 1_000) * 1_000);

    const verified = verify(received({ at }));

    expect(verified).toEqual({
      id: "msg_1",
      sentAtMs: at.getTime(),
      payload: { type: "invoice.paid", data: { amount: 1_200 } },
    });
  });

  it("accepts what the official library and Stripe's have signed", () => {
    const at = new Date();
    const signature = new Webhook(secret).sign("msg_1", at, BODY);
    const timestamp = String(Math.floor(at.getTime() / 1_000));
    const headers = { "webhook-id": "msg_1", "webhook-timestamp": timestamp };
    const stripe = new Stripe("sk_test_none").webhooks.generateTestHeaderString({
      payload: BODY,
      secret,
    });

    const given = { body: BODY, secret };
    const ofStandard = { ...headers, "webhook-signature": signature };
    expect(verify({ ...given, headers: ofStandard }).id).toBe("msg_1");
    const ofStripe = { "stripe-signature": stripe };
    expect(verify({ ...given, headers: ofStripe, signature: "stripe" }).payload).toEqual(
      JSON.parse(BODY),
    );
  });

  it.each<[string, (headers: Readonly<Record<string, string>>) => ReceivedHeaders]>([
    ["a Headers object", (headers) => new Headers(headers)],
    ["names in capitals", (headers) => upper(headers)],
    ["lists of one value", (headers) => lists(headers)],
  ])("takes headers as %s", (_what, asGiven) => {
    const { headers, ...others } = received();

    const given = asGiven(headers as Readonly<Record<string, string>>);

    expect(verify({ ...others, headers: given }).id).toBe("msg_1");
  });

  it("takes the raw body as bytes", () => {
    expect(verify({ ...received(), body: Buffer.from(BODY) }).id).toBe("msg_1");
    expect(verify({ ...received(), body: new TextEncoder().encode(BODY) }).id).toBe("msg_1");
  });

  it.each(["standard", "github", "stripe"] as const)(
    "refuses another body, another secret and no headers, signed as %s",
    (signature) => {
      const good = received({ signature });
      const other = createSecret();

      expect(reasonOf(good)).toBe("verified");
      expect(reasonOf({ ...good, body: `${BODY} ` })).toBe("no-match");
      expect(reasonOf({ ...good, secret: other })).toBe("no-match");
      expect(reasonOf({ ...good, secret: [other, secret] })).toBe("verified");
      expect(reasonOf({ ...good, headers: {} })).toBe("headers-missing");
    },
  );

  it.each(["standard", "stripe"] as const)(
    "refuses a webhook that is too old or too new, signed as %s",
    (signature) => {
      const [old, future] = [-302_000, 310_000].map((ms) => new Date(Date.now() + ms));

      expect(reasonOf(received({ signature, at: old }))).toBe("too-old");
      expect(reasonOf(received({ signature, at: future }))).toBe("too-new");
      expect(reasonOf({ ...received({ signature, at: old }), toleranceMs: 600_000 })).toBe(
        "verified",
      );
    },
  );

  it.each([
    ["another id", { "webhook-id": "msg_2" }, "no-match"],
    ["another time", { "webhook-timestamp": String(Math.floor(Date.now() / 1e3) + 9) }, "no-match"],
    ["a time with letters behind it", { "webhook-timestamp": "1700000000x" }, "headers-missing"],
    ["an unknown version", { "webhook-signature": "v2,AAAA" }, "no-match"],
    ["a signature without a version", { "webhook-signature": "AAAA" }, "no-match"],
    ["an empty signature", { "webhook-signature": "v1," }, "no-match"],
    ["a header that came twice", { "Webhook-Id": "msg_2" }, "headers-missing"],
  ])("refuses %s", (_what, change, reason) => {
    const good = received();

    const headers = { ...(good.headers as object), ...change };

    expect(reasonOf({ ...good, headers })).toBe(reason);
  });

  it("does not take a signature of one kind for the other", () => {
    const { publicKey, secret: ownSecret } = createKeyPair();
    const headers = sign({ id: "msg_1", body: BODY, secret: ownSecret }) as Record<string, string>;
    const swapped = headers["webhook-signature"]!.replace("v1a", "v1");

    expect(reasonOf({ body: BODY, headers, secret: publicKey })).toBe("verified");
    expect(reasonOf({ body: BODY, headers, secret })).toBe("no-match");
    expect(
      reasonOf({
        body: BODY,
        headers: { ...headers, "webhook-signature": swapped },
        secret: publicKey,
      }),
    ).toBe("no-match");
    expect(reasonOf({ body: BODY, headers, secret: createKeyPair().publicKey })).toBe("no-match");
  });

  it("says of a signed body that is no JSON that it is none", () => {
    const headers = sign({ id: "msg_1", body: "a=1", secret });

    expect(reasonOf({ body: "a=1", headers, secret })).toBe("not-json");
  });

  it.each([
    ["a body that was parsed", { body: { type: "invoice.paid" } }, "body"],
    ["no headers", { headers: undefined }, "headers"],
    ["a secret that is none", { secret: "hunter2" }, "secret"],
    ["a list without a secret", { secret: [] }, "secret"],
    ["an unknown option", { tolerance: 5 }, "tolerance"],
  ])("refuses %s by the name of the option", (_what, wrong, option) => {
    const given = { ...received(), ...wrong } as VerifyOptions;

    expect(() => verify(given)).toThrow(
      expect.objectContaining({ code: "ERR_INVALID_OPTION", option }),
    );
  });
});

function upper(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toUpperCase(), value]),
  );
}

function lists(headers: Readonly<Record<string, string>>): Record<string, string[]> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]]));
}

describe("a secret that was read from a file", () => {
  const pair = createKeyPair();

  it.each(["\n", "\r\n", " ", "\n\n", "\t"])("may end with %j, on either side", (end) => {
    const github = "It's a Secret to Everybody";
    const given: readonly [Partial<SignOptions>, string][] = [
      [{ secret }, secret],
      [{ secret: github, signature: "github" }, github],
      [{ secret: "whsec_stripe_0123456789", signature: "stripe" }, "whsec_stripe_0123456789"],
      [{ secret: pair.secret }, pair.publicKey],
    ];

    for (const [how, ofReceiver] of given) {
      const webhook = received(how);
      expect(verify({ ...webhook, secret: ofReceiver + end }).payload).toBeDefined();
      expect(verify({ ...webhook, secret: `\uFEFF${end}${ofReceiver}` }).payload).toBeDefined();
      const signed = received({ ...how, secret: `${String(how.secret)}${end}` });
      expect(verify({ ...signed, secret: ofReceiver }).payload).toBeDefined();
    }
    expect(publicKeyOf(pair.secret + end)).toBe(pair.publicKey);
  });

  it("is verified among others while it is rotated", () => {
    const older = createSecret();

    expect(verify({ ...received(), secret: [`${older}\n`, `${secret}\r\n`] }).id).toBe("msg_1");
  });
});

describe("a form of GitHub's", () => {
  const github = "It's a Secret to Everybody";
  const event = { zen: "Ünï + code & more = 100%", hook_id: 1 };
  const form = new URLSearchParams({ payload: JSON.stringify(event) }).toString();

  async function signed(body: string): Promise<VerifyOptions> {
    const headers = {
      "content-type": "application/x-www-form-urlencoded",
      "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
      "x-hub-signature-256": await new GithubWebhooks({ secret: github }).sign(body),
    };
    return { body, headers, secret: github, signature: "github" };
  }

  it.each([
    ["as GitHub sends it, unless a webhook is set to JSON", form],
    ["with other fields beside it", `a=1&${form}&b=2`],
    ["as bytes", Buffer.from(form)],
  ])("says what its payload says: %s", async (_what, body) => {
    const options = await signed(body.toString());

    const verified = verify({ ...options, body });

    expect(verified).toEqual({
      id: "72d3162e-cc78-11e3-81ab-4c9367dc0958",
      sentAtMs: undefined,
      payload: event,
    });
  });

  it("is refused where it was changed", async () => {
    const options = await signed(form);

    expect(reasonOf({ ...options, body: `${form}&a=1` })).toBe("no-match");
  });

  it.each(["payload=", "payload=no%20JSON", "other=%7B%7D", "no form"])(
    "is no JSON where it is %j, and the error says what to set",
    async (body) => {
      const options = await signed(body);

      expect(reasonOf(options)).toBe("not-json");
      expect(() => verify(options)).toThrow("set the webhook's content type to application/json");
    },
  );
});
