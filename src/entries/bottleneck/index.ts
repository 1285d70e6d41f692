/**
 * A drop-in replacement for Bottleneck 2: `import Bottleneck from "sluice/bottleneck"`.
 *
 * @module
 */
export { Bottleneck as default, Bottleneck } from "./bottleneck.ts";
export { Group } from "./group.ts";
export { Batcher } from "./batcher.ts";
export { IORedisConnection } from "./connection.ts";
export { BottleneckError } from "./job.ts";
export type {
  BatcherOptions,
  ConnectionOptions,
  ConstructorOptions,
  JobOptions,
  StopOptions,
  Strategy,
} from "./options.ts";
