import { Webhooks } from "@octokit/webhooks";
import examples from "@octokit/webhooks-examples";
import { Webhook } from "standardwebhooks";
import Stripe from "stripe";
import { describe, expect, it } from "vitest";
import { InvalidOptionError } from "sluice";
import { createKeyPair, createSecret, publicKeyOf, sign, verify } from "sluice/webhooks";

const BODY = JSON.stringify({ type: "invoice.paid", data: { amount: 1_200, of: "Ünïcode ☃ 🎉" } });
const payloads = (
  examples as unknown as readonly { readonly name: string; readonly examples: object[] }[]
).flatMap(({ name, examples: each }) => each.map((payload) => ({ name, payload })));

describe("webhooks signed as Standard Webhooks say", () => {
  it("are accepted by the official verifier, all of GitHub's example payloads", () => {
    const secret = createSecret();
    const receiver = new Webhook(secret);
    expect(payloads.length).toBeGreaterThan(100);

    for (const { payload } of payloads) {
      const body = JSON.stringify(payload);
      const headers = sign({ id: "msg_1", body, secret });
      expect(receiver.verify(body, headers)).toEqual(payload);
    }
  });

  it("are accepted by receivers with the old secret and with the new one while it is rotated", () => {
    const [newer, older] = [createSecret(), createSecret()];

    const headers = sign({ id: "msg_1", body: BODY, secret: [newer, older] });

    for (const secret of [newer, older]) new Webhook(secret).verify(BODY, headers);
    expect(() => new Webhook(createSecret()).verify(BODY, headers)).toThrow(
      "No matching signature",
    );
  });

  it("have the header names of Svix for receivers that were made for it", () => {
    const headers = sign({ id: "msg_1", body: BODY, secret: createSecret(), headerPrefix: "svix" });

    expect(Object.keys(headers)).toEqual(["svix-id", "svix-timestamp", "svix-signature"]);
  });

  it("are signed with ed25519 by a private key, beside HMAC", () => {
    const { secret, publicKey } = createKeyPair();
    const shared = createSecret();

    const headers = sign({ id: "msg_1", body: BODY, secret: [secret, shared] });

    expect(headers["webhook-signature"]).toMatch(/^v1a,\S{88} v1,\S{44}$/);
    expect(publicKeyOf(secret)).toBe(publicKey);
    new Webhook(shared).verify(BODY, headers);
    expect(verify({ body: BODY, headers, secret: publicKey }).id).toBe("msg_1");
  });

  it("verify with the key pair of the specification's reference vectors", () => {
    // A key of 64 bytes, and its signature of a known text, as the server of Svix tests itself.
    const secret =
      "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
    const at = new Date(1_614_265_330_000);

    const headers = sign({
      id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
      at,
      body: '{"test": 2432232314}',
      secret,
    });

    expect(publicKeyOf(secret)).toBe("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=");
    expect(headers["webhook-signature"]).toBe(
      "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
    );
  });
});

describe("webhooks signed as GitHub does", () => {
  it("are accepted by @octokit/webhooks, all of GitHub's example payloads", async () => {
    const secret = "a secret that GitHub's settings page has";
    const receiver = new Webhooks({ secret });

    for (const { name, payload } of payloads) {
      const body = JSON.stringify(payload);
      const headers = sign({ id: "d-1", body, secret, signature: "github", type: name });
      expect(headers["x-github-event"]).toBe(name);
      expect(await receiver.verify(body, headers["x-hub-signature-256"]!)).toBe(true);
    }
  });

  it("are signed by the older of two secrets, which is the one that a receiver surely has", async () => {
    const [newer, older] = ["the newer of two secrets", "the older of two secrets"];

    const headers = sign({ id: "d-1", body: BODY, secret: [newer, older], signature: "github" });

    const signature = headers["x-hub-signature-256"]!;
    expect(await new Webhooks({ secret: older }).verify(BODY, signature)).toBe(true);
  });
});

describe("webhooks signed as Stripe does", () => {
  it("are accepted by Stripe's own constructEvent, with either of two secrets", () => {
    const [newer, older] = [createSecret(), createSecret()];
    const stripe = new Stripe("sk_test_none");

    const headers = sign({ id: "evt_1", body: BODY, secret: [newer, older], signature: "stripe" });

    for (const secret of [newer, older]) {
      const event = stripe.webhooks.constructEvent(BODY, headers["stripe-signature"]!, secret);
      expect(event).toEqual(JSON.parse(BODY));
    }
  });
});

describe("sign()", () => {
  it.each([
    ["an id with a dot, which separates the parts that are signed", { id: "msg.1" }, "id"],
    ["an empty id", { id: "" }, "id"],
    ["a secret that is no base64", { secret: "whsec_not base64!" }, "secret"],
    ["a secret of few bytes", { secret: "whsec_c2hvcnQ=" }, "secret"],
    ["a secret without its prefix", { secret: "c".repeat(44) }, "secret"],
    ["no secret at all", { secret: [] }, "secret"],
    ["a key that only verifies", { secret: createKeyPair().publicKey }, "secret"],
    ["a body that was parsed", { body: {} }, "body"],
    ["bytes that are no UTF-8", { body: Uint8Array.of(0xff, 0xfe) }, "body"],
    ["a header prefix with a line break", { headerPrefix: "a\r\nb" }, "headerPrefix"],
    ["an unknown style", { signature: "slack" }, "signature"],
    ["an unknown option", { secrets: [] }, "secrets"],
    ["a time that is none", { at: new Date(Number.NaN) }, "at"],
  ])("refuses %s, and does not show the secret", (_what, wrong, option) => {
    const secret = createSecret();

    const given = { id: "msg_1", body: BODY, secret, ...wrong } as Parameters<typeof sign>[0];

    expect(() => sign(given)).toThrow(
      expect.objectContaining({ name: "InvalidOptionError", option }),
    );
    expect(() => sign(given)).toThrow(InvalidOptionError);
    expect(() => sign(given)).not.toThrow(secret.slice(6));
  });
});
