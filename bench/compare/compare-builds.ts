/** Compares this working tree's build with that of another revision. */
import { describeRun, withFreshBench } from "../fleet/fresh-bench.ts";
import { buildRevision } from "./build-revision.ts";
import { readCompareFlags, type CompareFlags, type ScenarioName } from "./compare-flags.ts";
import { deliveries } from "./deliveries.ts";
import { draws } from "./draws.ts";
import { OWN_BUILD } from "./import-build.ts";
import { packageCosts } from "./package.ts";
import { requests } from "./requests.ts";
import type { Peer, Run, Scenario } from "./scenario.ts";
import { tries } from "./tries.ts";
import {
  formatComparison,
  listRegressions,
  wasDisturbed,
  type Figures,
  type Measured,
  type Round,
} from "./verdict.ts";

const ALL: Readonly<Record<ScenarioName, Scenario>> = {
  ...draws,
  ...tries,
  ...deliveries,
  ...requests,
  ...packageCosts,
};

/** Prints the table. Resolves with the exit code: 1 if a figure has regressed. */
export async function compareBuilds(args: readonly string[]): Promise<number> {
  const flags = readCompareFlags(args);
  console.error(`Building ${flags.against} …`);
  const base = await buildRevision(flags.against);
  const heading = await withFreshBench(describeRun);
  const measured = await measureAll(flags, base.root);
  console.log(`New: this working tree. Base: ${flags.against} (${base.commit}). ${heading}`);
  console.log(`Rounds: ${flags.rounds} of ${flags.seconds} s.\n`);
  console.log(`${formatComparison(measured)}\n`);
  const regressions = listRegressions(measured);
  for (const regression of regressions) console.log(`WORSE: ${regression}`);
  if (regressions.length === 0) console.log("No figure is worse.");
  if (wasDisturbed(measured)) {
    console.log("Other processes used more than half a core: repeat this on a quiet machine.");
  }
  return regressions.length === 0 ? 0 : 1;
}

async function measureAll(
  { only, rounds, seconds }: CompareFlags,
  base: string,
): Promise<Measured[]> {
  const measurePeer = cachePeers(seconds);
  const all: Measured[] = [];
  for (const name of only) {
    const { title, figures, peer, isFixed = false } = ALL[name];
    const done: Round[] = [];
    for (let round = 0; round < rounds; round++) {
      if (isFixed && done[0] !== undefined) {
        done.push(done[0]);
        continue;
      }
      console.error(`${name}: round ${round + 1} of ${rounds}`);
      const inFresh = (build: string): Promise<Figures> =>
        withFreshBench((bench) => ALL[name].run({ bench, seconds }, build));
      done.push({
        base: await tolerateMissing(name, inFresh(base)),
        current: await inFresh(OWN_BUILD),
        peer: peer && (await measurePeer(peer, round)),
      });
    }
    const measured = { title, figures, peer: peer?.title, rounds: done };
    console.error(`${formatComparison([measured])}\n`);
    all.push(measured);
  }
  return all;
}

/** Runs each peer once per round, and shares its figures among the scenarios that have the same peer. */
function cachePeers(seconds: Run["seconds"]): (peer: Peer, round: number) => Promise<Figures> {
  const known = new Map<Peer, Figures[]>();
  return async (peer, round) => {
    const rounds = known.get(peer) ?? [];
    known.set(peer, rounds);
    return (rounds[round] ??= await withFreshBench((bench) => peer.run({ bench, seconds })));
  };
}

/** Handles a feature that an older build lacks: the table shows "–" for its figures, and the reason is printed. */
async function tolerateMissing(
  name: ScenarioName,
  running: Promise<Figures>,
): Promise<Figures | undefined> {
  try {
    return await running;
  } catch (error) {
    console.error(`${name}: the base build was not measured: ${String(error)}`);
    return undefined;
  }
}
