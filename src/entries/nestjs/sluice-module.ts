import type {
  DynamicModule,
  InjectionToken,
  OptionalFactoryDependency,
  Provider,
} from "@nestjs/common";
import { DiscoveryModule, DiscoveryService } from "@nestjs/core";
import * as z from "zod";
import { readOptions } from "../../core/input/options.ts";
import type { BucketOptions } from "../../throttle/bucket/bucket-options.ts";
import type { Queue } from "../../queue/queue.ts";
import { createSluice, type Sluice } from "../../sluice/create-sluice.ts";
import type { QueueOptions, SluiceOptions } from "../../sluice/options.ts";
import { getBucketToken, getQueueToken, SLUICE } from "./decorators.ts";
import { Processors, SluiceHealth } from "./processors.ts";

/** The options of `SluiceModule.forRoot()`: those of `createSluice()`, and `processors`. */
export interface SluiceModuleOptions extends SluiceOptions {
  /**
   * Whether the processors of this application run jobs. Give false to replicas that only enqueue. Defaults to true.
   */
  readonly processors?: boolean | undefined;
}

/** The options of `SluiceModule.forRootAsync()`, as for other modules of Nest. */
export interface SluiceModuleAsyncOptions {
  readonly imports?: DynamicModule["imports"];
  readonly inject?: (InjectionToken | OptionalFactoryDependency)[];
  readonly useFactory: (...injected: never[]) => SluiceModuleOptions | Promise<SluiceModuleOptions>;
}

/** The buckets and queues of `SluiceModule.forFeature()`, by their names. */
export interface SluiceFeature {
  readonly buckets?: Readonly<Record<string, BucketOptions>> | undefined;
  /** The options of each queue. `bucket` is the name of a bucket that any module declares. */
  readonly queues?:
    | Readonly<
        Record<string, Omit<QueueOptions<never, never>, "bucket"> & { readonly bucket: string }>
      >
    | undefined;
}

const OPTIONS = "sluice:options";
const PROCESSORS = "sluice:processors";
const TABLE_ERROR = { error: 'give options by name: { stripe: { rate: "100/s" } }' };
/** The number of calls of `forFeature()` in this process. */
let features = 0;
const PROCESSORS_OPTION = z.strictObject({
  processors: z
    .boolean({ error: "give true, or false for a replica that only enqueues" })
    .optional(),
});
const FEATURE = z.strictObject({
  buckets: z.record(z.string(), z.unknown(), TABLE_ERROR).optional(),
  queues: z
    .record(
      z.string(),
      z.looseObject(
        { bucket: z.string({ error: "give the name of a bucket" }) },
        { error: 'give options such as { bucket: "stripe" }' },
      ),
      TABLE_ERROR,
    )
    .optional(),
});

/**
 * The module of Sluice for Nest. `forRoot` creates the sluice, `forFeature` its buckets and queues. Both are global, so
 * each is imported once. The sluice and its workers close when the application closes.
 */
export class SluiceModule {
  /** Creates the sluice. An invalid option rejects the start of the application with {@link InvalidOptionError}. */
  static forRoot(options: SluiceModuleOptions = {}): DynamicModule {
    return rootOf({ provide: OPTIONS, useValue: options });
  }

  /** Creates the sluice with options that a factory returns, such as from a configuration service. */
  static forRootAsync({
    imports = [],
    inject = [],
    useFactory,
  }: SluiceModuleAsyncOptions): DynamicModule {
    return rootOf({ provide: OPTIONS, inject, useFactory: useFactory as () => unknown }, imports);
  }

  /**
   * Declares buckets and queues, for `@InjectBucket`, `@InjectQueue`, `@Throttled` and `@Processor`.
   *
   * @throws {@link InvalidOptionError} when a name of an option does not exist. Invalid options of a bucket or queue
   * reject the start of the application.
   */
  static forFeature(feature: SluiceFeature): DynamicModule {
    const { buckets = {}, queues = {} } = readOptions("forFeature()", FEATURE, feature);
    const providers: Provider[] = [
      // Nest compares dynamic modules by their JSON, which has no options of a factory. Without a unique provider, it
      // drops a second module with the same names and other options, and nothing refuses those options.
      { provide: `sluice:feature:${(features += 1)}`, useValue: true },
      ...Object.entries(buckets).map(([name, options]) => ({
        provide: getBucketToken(name),
        inject: [SLUICE],
        useFactory: (sluice: Sluice) => sluice.bucket(name, options as BucketOptions),
      })),
      ...Object.entries(queues).map(([name, { bucket, ...options }]) => ({
        provide: getQueueToken(name),
        inject: [SLUICE, PROCESSORS, getBucketToken(bucket)],
        useFactory(sluice: Sluice, processors: Processors, drawnFrom: QueueOptions["bucket"]) {
          const queue = sluice.queue(name, { ...options, bucket: drawnFrom } as QueueOptions);
          processors.add(queue as Queue<unknown>);
          return queue;
        },
      })),
    ];
    return moduleOf({ providers });
  }
}

function rootOf(
  options: Provider,
  imports: NonNullable<DynamicModule["imports"]> = [],
): DynamicModule {
  const sluice: Provider = {
    provide: SLUICE,
    inject: [OPTIONS],
    useFactory({ processors: isOn, ...given }: SluiceModuleOptions) {
      readOptions("SluiceModule", PROCESSORS_OPTION, { processors: isOn });
      return createSluice(given);
    },
  };
  const processors: Provider = {
    provide: PROCESSORS,
    inject: [SLUICE, OPTIONS, DiscoveryService],
    useFactory: (...parts: ConstructorParameters<typeof Processors>) => new Processors(...parts),
  };
  const health: Provider = {
    provide: SluiceHealth,
    inject: [SLUICE],
    useFactory: (opened: Sluice) => new SluiceHealth(opened),
  };
  const all = [DiscoveryModule, ...imports];
  return moduleOf({
    imports: all,
    providers: [options, sluice, processors, health],
    exports: [SLUICE, PROCESSORS, SluiceHealth],
  });
}

/** Returns a global module. Without `exports`, it exports all of its providers. */
function moduleOf({ providers = [], ...others }: Omit<DynamicModule, "module">): DynamicModule {
  const tokens = providers.map((each) => (typeof each === "function" ? each : each.provide));
  return { module: SluiceModule, global: true, providers, exports: tokens, ...others };
}
