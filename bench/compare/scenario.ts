import type { Bench } from "../fleet/run-load.ts";
import type { Figure, Figures } from "./verdict.ts";

/** The resources of one run of a scenario: a separate Redis and separate replicas. */
export interface Run {
  readonly bench: Bench;
  readonly seconds: number;
}

/** One load that is measured with both builds. */
export interface Scenario {
  readonly title: string;
  readonly figures: readonly Figure[];
  /** Runs the load. `build` is the folder of the built package. */
  run(run: Run, build: string): Promise<Figures>;
  /** True if a build has the same figures in each run, so that one run is enough. Defaults to false. */
  readonly isFixed?: boolean;
  readonly peer?: Peer;
}

/** A different package, or a plain way to do the same, which runs once a round. Scenarios may share a peer. */
export interface Peer {
  readonly title: string;
  run(run: Run): Promise<Figures>;
}
