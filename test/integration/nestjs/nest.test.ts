import "reflect-metadata";
import {
  Controller,
  Get,
  HttpCode,
  Inject,
  Injectable,
  Module,
  Param,
  Post,
  Scope,
  type Provider,
} from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { expect, inject, it, onTestFinished } from "vitest";
import {
  ClosedError,
  InvalidOptionError,
  type Bucket,
  type Job,
  type Queue,
  type Sluice,
} from "sluice";
import {
  InjectBucket,
  InjectQueue,
  InjectSluice,
  Process,
  Processor,
  SluiceHealth,
  SluiceModule,
  Throttled,
  type SluiceFeature,
} from "sluice/nestjs";
import { deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { SILENT } from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const FEATURE: SluiceFeature = {
  buckets: { stripe: { rate: "200/s", perKey: { rate: "100/s" } } },
  queues: { charges: { bucket: "stripe" }, mails: { bucket: "stripe" } },
};

interface Charge {
  readonly cents: number;
}

@Injectable()
class Payments {
  readonly label = "paid";

  @Throttled("stripe", { key: (tenant: string) => tenant })
  async pay(tenant: string, cents: number): Promise<string> {
    return `${this.label} ${cents} for ${tenant}`;
  }
}

@Controller("charges")
class ChargesController {
  @InjectQueue("charges") readonly charges!: Queue<Charge, string>;
  @InjectBucket("stripe") readonly stripe!: Bucket;
  @Inject(SluiceHealth) readonly health!: SluiceHealth;
  readonly payments: Payments;

  constructor(@Inject(Payments) payments: Payments) {
    this.payments = payments;
  }

  @Post(":cents")
  @HttpCode(202)
  async enqueue(@Param("cents") cents: string): Promise<object> {
    const job = await this.charges.enqueue({ cents: Number(cents) }, { key: "acme" });
    return { id: job.id, bucket: this.stripe.name };
  }

  @Throttled("stripe")
  @Get("now")
  async payNow(): Promise<object> {
    return { result: await this.payments.pay("acme", 7) };
  }

  @Get("health")
  async check(): Promise<object> {
    return this.health.check();
  }
}

@Processor("charges", { concurrency: 2 })
class ChargeProcessor {
  @Inject(Payments) readonly payments!: Payments;
  @InjectSluice() readonly sluice!: Sluice;

  async process(job: Job<Charge>): Promise<string> {
    await this.sluice.bucket("stripe").peek();
    return this.payments.pay(String(job.key), job.data.cents);
  }
}

@Processor("mails")
class MailProcessor {
  @Process("receipt")
  async receipt({ data }: Job<string>): Promise<string> {
    return `receipt to ${data}`;
  }

  @Process()
  other({ name, data }: Job<string>): string {
    return `${name ?? "mail"} to ${data}`;
  }
}

/** Starts an application of these classes on the Redis of the test; it is closed after the test. */
async function startApp({
  providers = [],
  feature = FEATURE,
  processors,
}: {
  providers?: Provider[];
  feature?: SluiceFeature;
  processors?: boolean;
} = {}) {
  const options = {
    redis: inject("redisUrl"),
    prefix: sluices.prefix(),
    logger: SILENT,
    processors,
  };
  @Module({ providers: [{ provide: "settings", useValue: options }], exports: ["settings"] })
  class SettingsModule {}
  @Module({
    imports: [
      SluiceModule.forRootAsync({
        imports: [SettingsModule as never],
        inject: ["settings"],
        useFactory: async (given: typeof options) => given,
      }),
      SluiceModule.forFeature(feature),
    ],
    providers: [Payments, ...providers],
    controllers: [ChargesController],
  })
  class AppModule {}
  const app = await NestFactory.create(AppModule, { logger: false, abortOnError: false });
  onTestFinished(() => app.close());
  await app.listen(0, "127.0.0.1");
  return { app, url: await app.getUrl() };
}

it("a Nest application injects queues and buckets, throttles methods, and runs processors", async () => {
  const { app, url } = await startApp({ providers: [ChargeProcessor, MailProcessor] });
  const { charges } = app.get(ChargesController);
  const mails = app.get<Queue<string, string>>("sluice:queue:mails");

  const posted = await fetch(`${url}/charges/1200`, { method: "POST" });
  const { id, bucket } = (await posted.json()) as { id: string; bucket: string };
  const now = (await (await fetch(`${url}/charges/now`)).json()) as object;
  const health = (await (await fetch(`${url}/charges/health`)).json()) as object;
  const receipt = await mails.enqueue("ann", { name: "receipt" });
  const other = await mails.enqueue("bob");

  expect(posted.status).toBe(202);
  expect(bucket).toBe("stripe");
  expect(await (await charges.job(id))!.finished()).toBe("paid 1200 for acme");
  expect(now).toEqual({ result: "paid 7 for acme" });
  expect(health).toEqual({ sluice: { status: "up" } });
  expect(await receipt.finished()).toBe("receipt to ann");
  expect(await other.finished()).toBe("mail to bob");
});

it("the calls of a throttled method keep to the rate, over all instances", async () => {
  const { app } = await startApp({
    feature: { ...FEATURE, buckets: { stripe: { rate: "100/s" } } },
  });
  const payments = app.get(Payments);
  const sinceMs = performance.now();

  await Promise.all(Array.from({ length: 21 }, (_, n) => payments.pay("acme", n)));

  // 21 calls, one each 10 ms. The clock of Redis counts in whole ms.
  expect(performance.now() - sinceMs).toBeGreaterThan(195);
});

it("a closing application waits for running handlers, then closes the sluice", async () => {
  const [began, mayEnd] = [deferred(), deferred()];
  let isAborted: boolean | undefined;
  @Processor("charges")
  class SlowProcessor {
    async process(_job: Job<Charge>, { signal }: { signal: AbortSignal }): Promise<string> {
      began.resolve();
      await mayEnd.promise;
      isAborted = signal.aborted;
      return "done";
    }
  }
  const { app } = await startApp({ providers: [SlowProcessor] });
  const { charges } = app.get(ChargesController);
  const sluice = app.get<Sluice>("sluice");
  const job = await charges.enqueue({ cents: 1 });
  await began.promise;

  const closing = app.close();
  const observer = sluices.open();
  const own = observer.bucket("stripe", { rate: "200/s", perKey: { rate: "100/s" } });
  const seen = observer.queue<Charge, string>("charges", { bucket: own });
  expect((await seen.counts()).active).toBe(1);
  mayEnd.resolve();
  await closing;

  expect(isAborted).toBe(false);
  expect(await (await seen.job(job.id))!.finished()).toBe("done");
  expect(() => sluice.bucket("other", { rate: "1/s" })).toThrow(ClosedError);
});

it("a replica without processors only enqueues", async () => {
  const web = await startApp({ providers: [ChargeProcessor], processors: false });
  const { charges } = web.app.get(ChargesController);
  const job = await charges.enqueue({ cents: 3 }, { key: "acme" });
  expect((await charges.status()).workers).toBe(0);

  await startApp({ providers: [ChargeProcessor] });

  expect(await job.finished()).toBe("paid 3 for acme");
});

it("processors that a factory creates, or that are values, run jobs once", async () => {
  class Made {
    readonly by: string;

    constructor(by: string) {
      this.by = by;
    }

    process({ id }: Job<unknown>): string {
      return `${id} by ${this.by}`;
    }
  }
  @Processor("charges")
  class MadeCharges extends Made {}
  @Processor("mails")
  class MadeMails extends Made {}
  const { app } = await startApp({
    providers: [
      Payments,
      {
        provide: "charge processor",
        inject: [Payments],
        useFactory: async ({ label }: Payments) => new MadeCharges(label),
      },
      { provide: "same processor", useExisting: "charge processor" },
      { provide: "mail processor", useValue: new MadeMails("value") },
      { provide: "nothing", useValue: null },
    ],
  });
  const { charges } = app.get(ChargesController);
  const mails = app.get<Queue<string, string>>("sluice:queue:mails");

  const charge = await charges.enqueue({ cents: 1 }, { id: "charge" });
  const mail = await mails.enqueue("ann", { id: "mail" });

  expect(await charge.finished()).toBe("charge by paid");
  expect(await mail.finished()).toBe("mail by value");
});

it("two modules that declare a bucket with different limits are refused, however Nest compares modules", async () => {
  const feature = (rate: `${number}/s`) =>
    SluiceModule.forFeature({ buckets: { stripe: { rate } } });
  @Module({ imports: [feature("200/s")] })
  class First {}
  @Module({ imports: [feature("100/s")] })
  class Second {}
  const root = SluiceModule.forRoot({
    redis: inject("redisUrl"),
    prefix: sluices.prefix(),
    logger: SILENT,
  });
  @Module({ imports: [root, First, Second] })
  class Both {}

  const refusal = await rejectionOf(
    NestFactory.createApplicationContext(Both, {
      logger: false,
      abortOnError: false,
      moduleIdGeneratorAlgorithm: "deep-hash",
    }),
  );

  expect(refusal).toBeInstanceOf(InvalidOptionError);
});

it("health is down, with the reason, once Redis cannot be reached", async () => {
  const health = new SluiceHealth(
    sluices.open({ redis: "redis://127.0.0.1:1", storeTimeoutMs: 50, logger: SILENT }),
  );

  const { redis } = await health.check("redis");

  expect(redis).toMatchObject({
    status: "down",
    reason: expect.stringContaining("Redis") as string,
  });
});

it("no processor starts if one of them can never work", async () => {
  class Mails {
    process(): string {
      return "sent";
    }
  }
  @Processor("mails")
  class Good extends Mails {}
  @Processor("charges", { concurrency: 0 })
  class BadOption extends Mails {}
  @Processor("charges", { batch: { size: 2 } })
  class BadBatch {
    @Process("receipt")
    receipt(): void {}
  }
  const observer = sluices.open();
  const bucket = observer.bucket("stripe", { rate: "200/s", perKey: { rate: "100/s" } });
  const mails = observer.queue<string>("mails", { bucket });

  const badOption = await rejectionOf(startApp({ providers: [Good, BadOption] }));
  const badBatch = await rejectionOf(startApp({ providers: [Good, BadBatch] }));
  const notBoolean = await rejectionOf(startApp({ processors: "false" as never }));

  // A worker reports itself when it starts, so a worker that had started would be counted.
  await mails.enqueue("ann");
  expect((await mails.status()).workers).toBe(0);
  expect(badOption).toMatchObject({ option: "concurrency", value: 0 });
  expect(badBatch).toMatchObject({ option: "batch" });
  expect(notBoolean).toMatchObject({ option: "processors", value: "false" });
});

it("processors, features and methods that can never work are refused by name", async () => {
  @Processor("refunds")
  class Unknown {
    process(): void {}
  }
  @Processor("charges")
  class Empty {}
  @Injectable({ scope: Scope.REQUEST })
  @Processor("charges")
  class PerRequest {
    process(): void {}
  }
  @Injectable({ scope: Scope.TRANSIENT })
  @Processor("charges")
  class Transient {
    process(): void {}
  }
  const start = (providers: Provider[]): Promise<unknown> => rejectionOf(startApp({ providers }));

  expect(await start([Unknown])).toMatchObject({ option: "queue", value: "refunds" });
  expect(await start([Empty])).toMatchObject({ option: "process" });
  expect(await start([PerRequest])).toMatchObject({ option: "scope", value: "request" });
  expect(await start([Transient])).toMatchObject({ option: "scope", value: "transient" });
  expect(() => SluiceModule.forFeature({ bucket: {} } as never)).toThrow(InvalidOptionError);
  expect(() => SluiceModule.forFeature({ queues: { a: {} } } as never)).toThrow(
    /"queues.a.bucket"/,
  );
  expect(() => Throttled("a", { maxWait: 1 } as never)).toThrow(/maxWaitMs/);
  expect(() => Processor("a:b")).toThrow(InvalidOptionError);
  const missing = await rejectionOf(
    startApp({ feature: { queues: { charges: { bucket: "nowhere" } } } }),
  );
  expect((missing as Error).message).toContain("sluice:bucket:nowhere");
  await expect(new Payments().pay("acme", 1)).rejects.toThrow(/Nest did not create this Payments/);
});
