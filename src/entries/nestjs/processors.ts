import type {
  BeforeApplicationShutdown,
  OnApplicationBootstrap,
  OnApplicationShutdown,
} from "@nestjs/common";
import type { DiscoveryService } from "@nestjs/core";
import { reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import type { HandlerInput } from "../../queue/worker/context.ts";
import { readWorkerOptions, type WorkerOptions } from "../../queue/worker/worker-options.ts";
import type { Worker } from "../../queue/worker/worker.ts";
import type { Queue } from "../../queue/queue.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { methodsOf, processorOf, type ProcessorFacts } from "./decorators.ts";

/** Starts the workers of an application's processors, and closes them and the sluice. */
export class Processors
  implements OnApplicationBootstrap, BeforeApplicationShutdown, OnApplicationShutdown
{
  readonly #sluice: Sluice;
  readonly #isOn: boolean;
  readonly #discovery: Pick<DiscoveryService, "getProviders">;
  readonly #queues = new Map<string, Queue<unknown>>();
  readonly #workers: Worker[] = [];

  constructor(
    sluice: Sluice,
    { processors = true }: { readonly processors?: boolean | undefined },
    discovery: Pick<DiscoveryService, "getProviders">,
  ) {
    this.#sluice = sluice;
    this.#isOn = processors;
    this.#discovery = discovery;
  }

  add(queue: Queue<unknown>): void {
    this.#queues.set(queue.name, queue);
  }

  /** Starts the workers once all providers are initialized. */
  onApplicationBootstrap(): void {
    if (!this.#isOn) return;
    const starts = new Map<object, () => Worker>();
    for (const wrapper of this.#discovery.getProviders()) {
      const isSingleton = wrapper.isDependencyTreeStatic() && !wrapper.isTransient;
      const instance: unknown = isSingleton ? wrapper.instance : undefined;
      // Only the instance of a provider with `useFactory` or `useValue` names the class.
      const prototype = (
        typeof instance === "object" && instance !== null
          ? Object.getPrototypeOf(instance)
          : wrapper.metatype?.prototype
      ) as object | null | undefined;
      const facts = prototype ? processorOf(prototype) : undefined;
      if (facts === undefined) continue;
      const { name } = prototype!.constructor;
      if (!isSingleton) {
        const remedy = "a worker outlives requests; make the class and what it injects singletons";
        const value = wrapper.isTransient ? "transient" : "request";
        throw refused(name, "scope", value, remedy);
      }
      // A provider that several modules list is one instance for each, so it would start several workers.
      if (starts.has(instance as object)) continue;
      starts.set(instance as object, this.#checked(name, instance as object, facts));
    }
    // Starts no worker before all processors are checked, because one bad processor rejects the start.
    for (const start of starts.values()) this.#workers.push(start());
  }

  /** Checks a processor. Returns a function that starts its worker. */
  #checked(
    name: string,
    instance: object,
    { queue: queueName, options }: ProcessorFacts,
  ): () => Worker {
    const queue = this.#queues.get(queueName);
    if (queue === undefined) {
      const known = [...this.#queues.keys()].join(", ") || "none";
      const remedy = `declare it with SluiceModule.forFeature({ queues }); declared are: ${known}`;
      throw refused(name, "queue", queueName, remedy);
    }
    const handler = handlerOf(name, instance);
    const read = readWorkerOptions(options);
    if (read.batch !== undefined && typeof handler !== "function") {
      const remedy = "with batch, give it a method process(jobs, context) instead of @Process()";
      throw refused(name, "batch", read.batch, remedy);
    }
    return () =>
      this.#sluice.worker(queue, handler, options as WorkerOptions & { batch?: undefined });
  }

  /** Stops the workers and waits for running handlers, while the application can still use its other providers. */
  async beforeApplicationShutdown(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.close()));
  }

  /** Closes the sluice once the HTTP server has answered its requests, which may enqueue jobs. */
  async onApplicationShutdown(): Promise<void> {
    await this.#sluice.close();
  }
}

/** Returns the handlers of a processor: its method `process`, or its methods with `@Process()`. */
function handlerOf(name: string, instance: object): HandlerInput<unknown, unknown> {
  const of = instance as Record<string | symbol, (...given: unknown[]) => unknown>;
  const byName = methodsOf(Object.getPrototypeOf(instance) as object);
  if (byName === undefined && typeof of["process"] === "function") {
    return (job, context) => of["process"]!(job, context);
  }
  if (byName === undefined || "process" in instance) {
    const remedy = "give it a method process(job, context), or methods with @Process(), not both";
    throw refused(name, "process", undefined, remedy);
  }
  const entries = [...byName].map(([jobName, method]) => [
    jobName,
    (...given: unknown[]) => of[method]!(...given),
  ]);
  return Object.fromEntries(entries) as HandlerInput<unknown, unknown>;
}

function refused(name: string, option: string, value: unknown, remedy: string): InvalidOptionError {
  return new InvalidOptionError({ where: `@Processor() of ${name}`, option, value, remedy });
}

/** The result of a health check, in the form of `@nestjs/terminus`. */
export type SluiceHealthResult<Name extends string> = Record<
  Name,
  { readonly status: "up" } | { readonly status: "down"; readonly reason: string }
>;

/** Reports whether the sluice can reach Redis. An indicator of `@nestjs/terminus`, which works without that package. */
export class SluiceHealth {
  readonly #sluice: Sluice;

  constructor(sluice: Sluice) {
    this.#sluice = sluice;
  }

  /** Sends one small request to each Redis server. Never rejects. */
  async check<Name extends string = "sluice">(
    name: Name = "sluice" as Name,
  ): Promise<SluiceHealthResult<Name>> {
    return { [name]: await this.#look() } as SluiceHealthResult<Name>;
  }

  async #look(): Promise<{ status: "up" } | { status: "down"; reason: string }> {
    try {
      const { unreachable } = await this.#sluice.overview({ limit: 1, brief: true });
      const [first] = unreachable;
      return first === undefined ? { status: "up" } : { status: "down", reason: first.reason };
    } catch (error) {
      return { status: "down", reason: reasonOf(error) };
    }
  }
}
