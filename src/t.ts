import { simulate } from "./entries/simulate/index.ts";
const run = (name: string, options: never) => {
  const r = simulate(options);
  console.log(
    name,
    "calls",
    r.calls,
    "draws",
    r.draws,
    "end",
    r.endMs | 0,
    JSON.stringify(r.limits),
    "p99",
    r.waits.p99Ms | 0,
  );
};
const arrivals = { ratePerSecond: 220, durationMs: 5_000, keys: 10 };
run("keys 1 replica", { policy: { rate: "100/s" }, replicas: 1, arrivals } as never);
run("keys 2 replica", { policy: { rate: "100/s" }, replicas: 2, arrivals } as never);
run("keys 4", { policy: { rate: "100/s" }, replicas: 4, arrivals } as never);
run("keys 4 rt .1", {
  policy: { rate: "100/s" },
  replicas: 4,
  arrivals,
  roundTripMs: 0.1,
} as never);
run("keys 4 rt 3", { policy: { rate: "100/s" }, replicas: 4, arrivals, roundTripMs: 3 } as never);
run("not fair 4", { policy: { rate: "100/s", fair: false }, replicas: 4, arrivals } as never);
run("keys 4 1000/s", {
  policy: { rate: "1000/s" },
  replicas: 4,
  arrivals: { ...arrivals, ratePerSecond: 2200 },
} as never);
