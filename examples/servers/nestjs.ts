/** A Nest server that enqueues charges and runs them in a processor. Needs $REDIS_URL and @nestjs/platform-express. */
import "reflect-metadata";
import { randomUUID } from "node:crypto";
import process from "node:process";
import { Controller, Inject, Injectable, Module, Param, Post } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import type { Job, Queue } from "sluice";
import { InjectQueue, Processor, SluiceModule, Throttled } from "sluice/nestjs";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

@Injectable()
class Payments {
  @Throttled("payments-api")
  async charge(cents: number): Promise<string> {
    return `charged ${cents}`;
  }
}

@Processor("charges", { concurrency: 10 })
class ChargeProcessor {
  @Inject(Payments) readonly payments!: Payments;

  async process(job: Job<number>): Promise<string> {
    return this.payments.charge(job.data);
  }
}

@Controller("charges")
class ChargesController {
  @InjectQueue("charges") readonly charges!: Queue<number, string>;

  @Post(":cents")
  async charge(@Param("cents") cents: string): Promise<{ result: string }> {
    const job = await this.charges.enqueue(Number(cents));
    return { result: await job.finished({ timeoutMs: 10_000 }) };
  }
}

const own = ownPrefix(`nest-${randomUUID().slice(0, 8)}`);

@Module({
  imports: [
    SluiceModule.forRoot({ prefix: own.prefix }),
    SluiceModule.forFeature({
      buckets: { "payments-api": { rate: "50/s" } },
      queues: { charges: { bucket: "payments-api" } },
    }),
  ],
  providers: [Payments, ChargeProcessor],
  controllers: [ChargesController],
})
class AppModule {}

const app = await NestFactory.create(AppModule, { logger: ["error"] });
onStop(async () => {
  await app.close();
  await own[Symbol.asyncDispose]();
});
await app.listen(Number(process.env["PORT"] ?? 3_000), "127.0.0.1");
console.log(`Ask ${await app.getUrl()}: curl -X POST ${await app.getUrl()}/charges/1200`);
