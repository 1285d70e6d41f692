import { describe, expect, it } from "vitest";
import type { JobFailedError, Queue } from "sluice";
import { createPayments, type PaymentsStandIn } from "../../../examples/stand-ins/payments.ts";
import type { StandInCall } from "../../../examples/stand-ins/server.ts";
import {
  openPaymentQueue,
  PAYMENT_QUEUE,
  type Payment,
  type PaymentResult,
} from "../../../workers/payment/queue.ts";
import { readSettings } from "../../../workers/shared/settings.ts";
import { fakeApis, type ApiAnswer, type FakeApi } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import type { ScriptProcess } from "../../support/children/script-process.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { faultsOfRefusal, workerFiles, type Environment } from "../../support/jobs/worker-files.ts";

const API_KEY = "sk_test_secret0123456789";
const LIMITS: Environment = { SLUICE_RATE: "200/s", SLUICE_KEY_RATE: "100/s" };
const PAYMENT: Payment = {
  paymentIntent: { amount: 1_200, currency: "eur", payment_method: "pm_card_visa", confirm: true },
};
const DECLINED: Payment = {
  charge: { amount: 700, currency: "eur", source: "tok_chargeDeclined" },
};
const FAST = { attempts: 6, backoff: { baseMs: 1 } };

const sluices = realSluices();
const workers = workerFiles(sluices);
const apis = fakeApis();

interface FakeStripe extends FakeApi {
  readonly charged: PaymentsStandIn["charged"];
}

/** Keeps keys and charges as Stripe does; `spoil` says what becomes of an answer on its way. */
async function startStripe(
  spoil: (number: number, answer: () => ApiAnswer) => ApiAnswer = (_number, answer) => answer(),
): Promise<FakeStripe> {
  const payments = createPayments();
  const answerTo = (call: StandInCall): ApiAnswer => {
    const { body, ...answer } = payments.answer(call);
    return { ...answer, body: body.join("") };
  };
  const api = await apis.start((call, number) => spoil(number, () => answerTo(call)));
  return { ...api, charged: payments.charged };
}

function refusal(status: number, headers: Readonly<Record<string, string>> = {}): ApiAnswer {
  const error = { type: "api_error", code: "some_code", message: `Refused: ${API_KEY}` };
  return { status, headers, body: JSON.stringify({ error }) };
}

function openQueue(env = LIMITS): Queue<Payment> {
  return openPaymentQueue(sluices.open(), readSettings(env, PAYMENT_QUEUE));
}

function startWorker({ url }: Pick<FakeApi, "url">, env: Environment = {}): ScriptProcess {
  const api = { STRIPE_SECRET_KEY: API_KEY, STRIPE_BASE_URL: url };
  return workers.start("payment-worker.ts", { ...LIMITS, ...api, ...env });
}

function keysOf({ calls }: FakeApi): Set<unknown> {
  return new Set(calls.map(({ headers }) => headers["idempotency-key"]));
}

describe("the payment worker", () => {
  it.each([
    ["payment intent", PAYMENT, "/v1/payment_intents", "pi_1"],
    ["charge", { charge: { amount: 1_200, currency: "eur" } }, "/v1/charges", "ch_1"],
  ])("makes a %s of what the job says, on its account", async (_what, payment, path, id) => {
    const stripe = await startStripe();
    const queue = openQueue();
    const job = await queue.enqueue({ ...payment, account: "acct_1" }, { key: "acct_1" });

    startWorker(stripe);
    const result = await job.finished<PaymentResult>();

    expect(result).toEqual({ id, status: "succeeded", amount: 1_200, currency: "eur" });
    expect(stripe.charged).toEqual([{ amount: 1_200, account: "acct_1" }]);
    expect(stripe.calls[0]).toMatchObject({
      path,
      headers: { authorization: `Bearer ${API_KEY}`, "stripe-account": "acct_1" },
    });
  });

  it("charges once when its process is killed between the charge and the answer", async () => {
    // The first answer never leaves.
    const stripe = await startStripe((number, answer) =>
      number === 0 ? { ...answer(), stream: () => undefined } : answer(),
    );
    const job = await openQueue().enqueue(PAYMENT, { attempts: 1 });
    const env = { SLUICE_LOCK_MS: "1000" };
    const killed = startWorker(stripe, env);
    await waitUntil(() => stripe.charged.length === 1, "the server has charged");

    killed.signal("SIGKILL");
    expect(await killed.ended).toBe(null);
    startWorker(stripe, env);
    const result = await job.finished<PaymentResult>();

    expect(result).toMatchObject({ id: "pi_1", status: "succeeded" });
    expect(stripe.charged).toHaveLength(1);
    expect(stripe.calls).toHaveLength(2);
    expect(keysOf(stripe).size).toBe(1);
  });

  it("tries again with the same key after a 409, a 429, a 500 and a connection that breaks", async () => {
    const stripe = await startStripe((number, answer) => {
      if (number === 0) return refusal(409);
      if (number === 1) return refusal(429, { "retry-after": "2" });
      if (number === 2) return refusal(500);
      // It is charged, and the answer is lost.
      if (number === 3) return { ...answer(), stream: (response) => response.destroy() };
      return answer();
    });
    const job = await openQueue().enqueue(PAYMENT, FAST);

    startWorker(stripe);
    const result = await job.finished<PaymentResult>();

    expect(result.id).toBe("pi_1");
    expect(stripe.calls).toHaveLength(5);
    expect(keysOf(stripe).size).toBe(1);
    expect(stripe.charged).toHaveLength(1);
    const [, limited, next] = stripe.calls.map(({ atMs }) => atMs);
    expect(next! - limited!).toBeGreaterThanOrEqual(2_000);
  });

  it("has the stored answer of a payment that is replayed, and a new one for another job", async () => {
    const stripe = await startStripe((number, answer) =>
      number === 0 ? { ...answer(), stream: (response) => response.destroy() } : answer(),
    );
    const queue = openQueue();
    const job = await queue.enqueue(PAYMENT, { attempts: 1 });
    startWorker(stripe);
    await expect(job.finished()).rejects.toThrow("got no answer (StripeConnectionError)");

    expect(await queue.replay(job.id)).toBe(1);
    const other = await queue.enqueue(PAYMENT);

    await waitUntil(async () => (await job.state()) === "done", "the replayed job is done");
    expect(await job.finished<PaymentResult>()).toMatchObject({ id: "pi_1" });
    expect(await other.finished<PaymentResult>()).toMatchObject({ id: "pi_2" });
    expect(stripe.charged).toHaveLength(2);
  });

  it("gives a card up that is declined, with Stripe's code as the reason", async () => {
    const stripe = await startStripe(() => {
      const error = { type: "card_error", code: "card_declined", message: "Declined." };
      return { status: 402, body: JSON.stringify({ error }) };
    });
    const queue = openQueue();
    const job = await queue.enqueue(DECLINED, FAST);

    startWorker(stripe);

    await expect(job.finished()).rejects.toMatchObject({ reason: "card_declined" });
    expect(stripe.calls).toHaveLength(1);
    expect(await queue.failed({ reason: "card_declined" })).toHaveLength(1);
  });

  it("gives a payment up that is answered 400, 401, 403 or 404", async () => {
    const statuses = [400, 401, 403, 404];
    const stripe = await startStripe((number) => refusal(statuses[number] ?? 500));
    const jobs = await openQueue().enqueueMany(Array<Payment>(4).fill(PAYMENT), FAST);

    startWorker(stripe);
    const refused = await Promise.all(jobs.map((job) => rejectionOf(job.finished())));

    const reasons = statuses.map((status) => `was answered ${status} (some_code)`);
    expect(refused.map((error) => (error as JobFailedError).reason).toSorted()).toEqual(reasons);
    expect(stripe.calls).toHaveLength(4);
  });

  it("gives a job up that is no payment, and sends nothing", async () => {
    const stripe = await startStripe();
    const job = await openQueue().enqueue({ amount: 5 } as unknown as Payment, FAST);

    startWorker(stripe);

    await expect(job.finished()).rejects.toThrow("neither { paymentIntent } nor { charge }");
    expect(stripe.calls).toEqual([]);
  });

  it("holds back an account that has used its own rate up, and no other", async () => {
    const stripe = await startStripe();
    // Slots of a slow bucket may come late: one that is drawn again costs its key an hour.
    const env = { SLUICE_RATE: "5/s", SLUICE_KEY_RATE: "1/h" };
    const queue = openQueue(env);
    const accounts = ["acct_1", "acct_1", "acct_1", "acct_2", "acct_3"];
    await queue.enqueueMany(
      accounts.map((account) => ({ ...PAYMENT, account })),
      ({ account }) => ({ key: account }),
    );

    startWorker(stripe, env);
    await waitUntil(() => stripe.charged.length === 3, "each account has been charged");

    const charged = new Set(stripe.charged.map(({ account }) => account));
    expect(charged).toEqual(new Set(["acct_1", "acct_2", "acct_3"]));
  });

  it("logs neither its key nor the payment", async () => {
    const stripe = await startStripe((number, answer) => (number === 0 ? refusal(500) : answer()));
    const metadata = { note: "secret-note" };
    const paymentIntent = { amount: 1_200, currency: "eur", metadata };
    const job = await openQueue().enqueue({ paymentIntent }, FAST);

    const worker = startWorker(stripe);
    await job.finished();
    await waitUntil(() => worker.stdout.includes("Charged."), "it is logged");

    expect(worker.stdout).toContain("was answered 500");
    expect(worker.stdout + worker.stderr).not.toContain("secret");
  });
});

it("the settings of the payment worker are refused, with a line for each that says what to give", async () => {
  const faults = await faultsOfRefusal(
    [
      ["STRIPE_SECRET_KEY", "", "is not set; give the key of the API"],
      ["STRIPE_BASE_URL", "stripe", "give an http or https address"],
      ["SLUICE_RATE", "fast", "write whole calls per time"],
      ["SLUICE_KEY_RATE", "fast", "write whole calls per time"],
    ],
    (env) => startWorker({ url: "http://127.0.0.1:1" }, env),
  );

  expect(faults).toEqual([]);
});
