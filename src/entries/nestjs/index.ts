export {
  getBucketToken,
  getQueueToken,
  InjectBucket,
  InjectQueue,
  InjectSluice,
  Process,
  Processor,
  SLUICE,
  Throttled,
  type JobProcessor,
} from "./decorators.ts";

export {
  SluiceModule,
  type SluiceFeature,
  type SluiceModuleAsyncOptions,
  type SluiceModuleOptions,
} from "./sluice-module.ts";

export { SluiceHealth, type SluiceHealthResult } from "./processors.ts";
