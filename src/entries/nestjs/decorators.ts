import { Inject } from "@nestjs/common";
import { InvalidOptionError } from "../../core/errors.ts";
import { NAME } from "../../core/input/options.ts";
import { readCallOptions, type CallOptions } from "../../throttle/call-options.ts";
import type { Bucket } from "../../throttle/bucket.ts";
import type { BatchWorkerOptions, WorkerOptions } from "../../queue/worker/worker-options.ts";
import type { JobContext } from "../../queue/worker/context.ts";
import type { Job } from "../../queue/job.ts";

/** The token of the sluice. */
export const SLUICE: string = "sluice";

/** Returns the token of a bucket. */
export function getBucketToken(name: string): string {
  return `sluice:bucket:${name}`;
}

/** Returns the token of a queue. */
export function getQueueToken(name: string): string {
  return `sluice:queue:${name}`;
}

type Injection = PropertyDecorator & ParameterDecorator;

/** Injects the sluice. */
export function InjectSluice(): Injection {
  return Inject(SLUICE);
}

/** Injects the bucket with this name, as `forFeature()` declares it. */
export function InjectBucket(name: string): Injection {
  return Inject(getBucketToken(readName("@InjectBucket()", name)));
}

/** Injects the queue with this name, as `forFeature()` declares it. */
export function InjectQueue(name: string): Injection {
  return Inject(getQueueToken(readName("@InjectQueue()", name)));
}

function readName(where: string, name: unknown): string {
  const read = NAME.safeParse(name);
  if (read.success) return read.data;
  const remedy = read.error.issues[0]!.message;
  throw new InvalidOptionError({ where, option: "name", value: name, remedy });
}

type AsyncMethod<Args extends unknown[], Result> = (...args: Args) => Promise<Result>;

/**
 * Makes each call of a method wait for its slot in the bucket with this name. The method has to return a promise. The
 * options are those of `bucket.throttled()`, and its functions get the arguments of the method. Works in providers and
 * controllers of any scope.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export function Throttled<Args extends unknown[] = never[], Result = unknown>(
  bucket: string,
  options?: CallOptions<Args, Result>,
): <Method extends AsyncMethod<[...Args, ...never[]], Result>>(
  target: object,
  method: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => void {
  const where = "@Throttled()";
  const name = readName(where, bucket);
  if (options !== undefined) readCallOptions(where, options);
  return (target, method, descriptor) => {
    const original = descriptor.value! as unknown as AsyncMethod<unknown[], unknown>;
    const property = getBucketToken(name);
    // Nest sets this property of each instance, and reports a bucket that no module declares.
    Inject(property)(target, property);
    const wrapped = new WeakMap<object, AsyncMethod<unknown[], unknown>>();
    async function throttledMethod(
      this: Record<string, unknown>,
      ...args: unknown[]
    ): Promise<unknown> {
      let call = wrapped.get(this);
      if (call === undefined) {
        const found = this[property] as Bucket | undefined;
        if (found === undefined) {
          const remedy = `Nest did not create this ${target.constructor.name}; get it from Nest, and import SluiceModule.forFeature()`;
          throw new InvalidOptionError({ where, option: "bucket", value: name, remedy });
        }
        const bound = (...given: unknown[]) => original.apply(this, given);
        call = found.throttled(bound, options as never) as AsyncMethod<unknown[], unknown>;
        wrapped.set(this, call);
      }
      return call(...args);
    }
    copyMetadata(original, throttledMethod);
    Object.defineProperty(throttledMethod, "name", { value: String(method) });
    descriptor.value = throttledMethod as never;
  };
}

/** Copies what other decorators, such as `@Get()`, have stored with a method. */
function copyMetadata(from: object, to: object): void {
  // Nest loads the package `reflect-metadata`, which adds these functions.
  const metadata = Reflect as unknown as {
    getMetadataKeys(of: object): unknown[];
    getMetadata(key: unknown, of: object): unknown;
    defineMetadata(key: unknown, value: unknown, of: object): void;
  };
  for (const key of metadata.getMetadataKeys(from)) {
    metadata.defineMetadata(key, metadata.getMetadata(key, from), to);
  }
}

/** A class with a handler for all jobs of its queue. */
export interface JobProcessor<Data = unknown, Result = unknown> {
  process(job: Job<Data>, context: JobContext): Result | Promise<Result>;
}

/** What a processor's decorators say. */
export interface ProcessorFacts {
  readonly queue: string;
  readonly options: WorkerOptions | BatchWorkerOptions<never> | undefined;
}

const processors = new WeakMap<object, ProcessorFacts>();
const methods = new WeakMap<object, Map<string, string | symbol>>();

/**
 * Makes a provider the worker of a queue. Its method `process` gets each job and its context, as a handler of
 * `sluice.worker()` does. With `batch` in the options, it gets an array of jobs. Instead of `process`, the class may
 * have methods with `@Process(name)`, one for each job name.
 */
export function Processor(
  queue: string,
  options?: WorkerOptions | BatchWorkerOptions<never>,
): ClassDecorator {
  const name = readName("@Processor()", queue);
  return (target) => void processors.set(target.prototype as object, { queue: name, options });
}

/**
 * Makes a method of a processor the handler of the jobs with this name. `"default"` handles all jobs whose name has no
 * handler.
 */
export function Process(jobName: string = "default"): MethodDecorator {
  return (target, method) => {
    const found = methods.get(target) ?? new Map<string, string | symbol>();
    if (found.has(jobName)) {
      const remedy = `${target.constructor.name} has two methods for it; keep one`;
      throw new InvalidOptionError({
        where: "@Process()",
        option: "jobName",
        value: jobName,
        remedy,
      });
    }
    methods.set(target, found.set(jobName, method));
  };
}

/** Returns what the decorators of an instance's class, or of the class that it extends, say. */
export function processorOf(prototype: object): ProcessorFacts | undefined {
  return ofChain(processors, prototype);
}

export function methodsOf(prototype: object): ReadonlyMap<string, string | symbol> | undefined {
  return ofChain(methods, prototype);
}

function ofChain<Value>(values: WeakMap<object, Value>, prototype: object): Value | undefined {
  for (let each: object | null = prototype; each !== null;) {
    const found = values.get(each);
    if (found !== undefined) return found;
    each = Object.getPrototypeOf(each) as object | null;
  }
  return undefined;
}
