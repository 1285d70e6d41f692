/** What is sent, as receivers see it that nobody here wrote. */
import { Webhooks as OctokitWebhooks } from "@octokit/webhooks";
import examples from "@octokit/webhooks-examples";
import { Webhook } from "standardwebhooks";
import Stripe from "stripe";
import { describe, expect, it } from "vitest";
import type { Arrival } from "sluice/testing";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { openHooks, put, startReceiver } from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const payloads = (
  examples as unknown as readonly { readonly name: string; readonly examples: object[] }[]
).flatMap(({ name, examples: each }) => each.map((payload) => ({ name, payload })));
const GITHUB_SECRET = "a secret that GitHub's settings page has";
const STRIPE_SECRET = "the secret of a receiver like Stripe's";

describe("all of GitHub's example payloads, sent to an endpoint of each style", () => {
  it("are accepted by @octokit/webhooks, standardwebhooks and Stripe's constructEvent", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    const of = (id: string): { tenant: string; id: string; url: string } => {
      return { tenant: "acme", id, url: `${receiver.url}/${id}` };
    };
    const secret = await put(hooks, of("standard"));
    await put(hooks, { ...of("github"), secret: GITHUB_SECRET, signature: "github" });
    await put(hooks, { ...of("stripe"), secret: STRIPE_SECRET, signature: "stripe" });
    hooks.worker();

    for (const [at, { name, payload }] of payloads.entries()) {
      await hooks.send({ tenant: "acme", type: name, data: payload, id: `m-${at}` });
    }
    const wanted = payloads.length * 3;
    expect(wanted).toBeGreaterThan(300);
    await waitUntil(() => receiver.arrivals.length >= wanted, "all have arrived");

    const at = (path: string): readonly Arrival[] =>
      receiver.arrivals.filter((each) => each.path === path);
    const standard = new Webhook(secret);
    for (const { body, headers } of at("/standard")) {
      const index = Number(String(headers["webhook-id"]).slice(2));
      const { name, payload } = payloads[index]!;
      expect(standard.verify(body, headers as Record<string, string>)).toMatchObject({
        type: name,
        data: payload,
      });
    }
    const octokit = new OctokitWebhooks({ secret: GITHUB_SECRET });
    const heard: string[] = [];
    octokit.onAny(({ id }) => void heard.push(id));
    for (const { body, headers } of at("/github")) {
      const id = String(headers["x-github-delivery"]);
      const { name } = payloads[Number(id.slice(2))]!;
      expect(headers["x-github-event"]).toBe(name);
      const signature = String(headers["x-hub-signature-256"]);
      await octokit.verifyAndReceive({ id, name: name as never, payload: body, signature });
    }
    expect(new Set(heard).size).toBe(payloads.length);
    const stripe = new Stripe("sk_test_none");
    const events = at("/stripe").map(({ body, headers }) => {
      const signature = String(headers["stripe-signature"]);
      return stripe.webhooks.constructEvent(body, signature, STRIPE_SECRET) as unknown as object;
    });
    const texts = (all: readonly object[]): string[] => all.map((each) => JSON.stringify(each));
    expect(texts(events).toSorted()).toEqual(
      texts(payloads.map((each) => each.payload)).toSorted(),
    );
  });
});
