/**
 * Simulates a bucket in virtual time: when each call would leave, how long calls wait, and what delays them.
 *
 * @module
 */
export { simulate, type Simulation } from "./simulate.ts";
export type { SimulateOptions, SimulatedOutcome } from "./options.ts";
export type { Arrival, Arrivals, GeneratedArrivals } from "./arrivals.ts";
export type { DownstreamOptions } from "./downstream.ts";
export type { SimulatedHistory } from "./history.ts";
export type { WaitSummary } from "./histogram.ts";
export { InvalidOptionError } from "../../core/errors.ts";
