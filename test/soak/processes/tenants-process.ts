/**
 * The producer of the tenants' jobs. Four tenants always have jobs that wait; of the others one at a time has a few; and
 * now and then a newcomer brings ten. It reports which jobs Redis has confirmed, and when.
 */
import { setTimeout as pause } from "node:timers/promises";
import { StoreUnavailableError, type EnqueueOptions } from "sluice";
import { createMachineClock } from "../../../bench/fleet/machine-clock.ts";
import {
  fateOf,
  keyOf,
  KEYLESS,
  LARGE,
  optionsOf,
  TENANTS,
  tenantOf,
  type TenantJob,
} from "../tenants/tenants.ts";
import type { FromTenants, StoredJobs } from "./messages.ts";
import { endWhenAsked, openActor, untilMessage } from "./open-actor.ts";

const EVERY_MS = 100;
const REPORT_EVERY_MS = 200;
const FIRST_JOBS = 400;
const LARGE_JOBS = 12;
const LARGE_EVERY = 10;
const SMALL_JOBS = 3;
const NEWCOMER_JOBS = 10;
const NEWCOMER_EVERY = 25;

const actor = openActor();
const { tenants: queue } = actor;
const nowMs = createMachineClock();
const underWay = new Set<Promise<void>>();
const errors: string[] = [];
let stored: StoredJobs[] = [];
let refused = 0;
let isStopped = false;
let nextNumber = 0;

function send(message: FromTenants): void {
  process.send?.(message);
}

interface Wanted {
  readonly tenant: string;
  readonly jobs: number;
  readonly isNewcomer?: boolean;
}

/** Stores jobs of one tenant, those of the same options together. */
async function enqueue({ tenant, jobs, isNewcomer = false }: Wanted): Promise<void> {
  const groups = new Map<string, { options: EnqueueOptions; jobs: TenantJob[] }>();
  for (let count = 0; count < jobs; count++) {
    const number = nextNumber++;
    const fate = isNewcomer ? "done" : fateOf(number);
    const key = isNewcomer ? tenant : keyOf(tenant, number);
    const options = { ...(isNewcomer ? {} : optionsOf(fate, number)), key };
    const name = JSON.stringify(options);
    const group = groups.get(name) ?? { options, jobs: [] };
    groups.set(name, group);
    group.jobs.push({ number, tenant: key ?? KEYLESS, fate });
  }
  await Promise.all([...groups.values()].map((group) => store(group, isNewcomer)));
}

async function store(
  { options, jobs }: { options: EnqueueOptions; jobs: readonly TenantJob[] },
  isNewcomer: boolean,
): Promise<void> {
  const askedMs = nowMs();
  try {
    const queued = await queue.enqueueMany(jobs, options);
    const ids = queued.map(({ id }) => id);
    stored.push({ askedMs, storedMs: nowMs(), isNewcomer, jobs, ids });
  } catch (error) {
    refused += 1;
    if (!(error instanceof StoreUnavailableError)) errors.push(String(error));
  }
}

function begin(wanted: Wanted): void {
  const enqueuing = enqueue(wanted).finally(() => underWay.delete(enqueuing));
  underWay.add(enqueuing);
}

function report(): void {
  if (stored.length > 0) send({ kind: "stored", stored });
  stored = [];
}

const go = untilMessage("go");
void untilMessage("rest").then(() => (isStopped = true));
send({ kind: "ready" });
await go;
const reporting = setInterval(report, REPORT_EVERY_MS);
for (let index = 0; index < LARGE; index++) begin({ tenant: tenantOf(index), jobs: FIRST_JOBS });
for (let round = 1; !isStopped; round++) {
  if (round % LARGE_EVERY === 0) {
    for (let index = 0; index < LARGE; index++) {
      begin({ tenant: tenantOf(index), jobs: LARGE_JOBS });
    }
  }
  const small = LARGE + ((round * 7) % (TENANTS - LARGE));
  begin({ tenant: tenantOf(small), jobs: SMALL_JOBS });
  if (round % NEWCOMER_EVERY === 0) {
    begin({ tenant: `newcomer ${round}`, jobs: NEWCOMER_JOBS, isNewcomer: true });
  }
  await pause(EVERY_MS);
}
await Promise.all(underWay);
clearInterval(reporting);
report();
send({ kind: "rested", refused, errors });
endWhenAsked(actor);
