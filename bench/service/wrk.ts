/** Runs `wrk` against a server, and reads its results. */
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

export interface Load {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
  readonly p99Ms: number;
  readonly answered: number;
  readonly refused: number;
}

/** The requests that `wrk` sends. They are all equal unless `body` is random. */
export interface Requests {
  readonly url: string;
  readonly connections: number;
  /** The end of a Lua function that returns the body: `return '{}'`. */
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly seconds: number;
}

/** Measures two ways alternately. Returns the median of the ratios, and the last result of each. */
export async function compare(
  mine: Requests,
  theirs: Requests,
  rounds: number,
): Promise<{ readonly mine: Load; readonly theirs: Load; readonly ratio: number }> {
  await Promise.all([load(mine), load(theirs)]);
  const pairs: [Load, Load][] = [];
  for (let round = 0; round < rounds; round++) pairs.push([await load(theirs), await load(mine)]);
  const ratios = pairs.map(([of, to]) => to.perSecond / of.perSecond).toSorted((a, b) => a - b);
  const [last, own] = pairs.at(-1)!;
  return { mine: own, theirs: last, ratio: ratios[Math.floor(ratios.length / 2)]! };
}

const REPORT = `
done = function(summary, latency)
  local bad = summary.errors.status
  local answered = summary.requests
  io.write(string.format('\\nREPORT {"answered":%d,"refused":%d,"us":%d,"p50":%d,"p95":%d,"p99":%d}\\n',
    answered, bad, summary.duration, latency:percentile(50), latency:percentile(95), latency:percentile(99)))
end
`;

export async function load(requests: Requests): Promise<Load> {
  const { url, connections, body, headers = {}, seconds } = requests;
  const all = { "content-type": "application/json", ...headers };
  const named = Object.entries(all).map(([name, value]) => `wrk.headers["${name}"] = "${value}"\n`);
  const asking = `request = function() return wrk.format(nil, nil, nil, body()) end\n`;
  const folder = await mkdtemp(join(tmpdir(), "sluice-wrk-"));
  try {
    const script = join(folder, "load.lua");
    const heads = `wrk.method = "POST"\n${named.join("")}`;
    await writeFile(script, `${heads}local function body() ${body} end\n${asking}${REPORT}`);
    const args = ["-t1", `-c${connections}`, `-d${seconds}s`, "-s", script, url];
    const { stdout } = await run("wrk", args);
    const report = JSON.parse(/^REPORT (.*)$/m.exec(stdout)![1]!) as Record<string, number>;
    return {
      perSecond: (report["answered"]! * 1e6) / report["us"]!,
      p50Ms: report["p50"]! / 1_000,
      p95Ms: report["p95"]! / 1_000,
      p99Ms: report["p99"]! / 1_000,
      answered: report["answered"]!,
      refused: report["refused"]!,
    };
  } finally {
    await rm(folder, { recursive: true });
  }
}
