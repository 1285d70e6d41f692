import { createHash } from "node:crypto";
import type * as z from "zod";
import type { Document, LineCounter, Node, Pair } from "yaml";
import { withoutStop } from "../core/describe.ts";
import { closest } from "../core/input/options.ts";
import { SETTING_NAMES } from "../core/input/queue-settings.ts";
import type { PolicyOptions } from "../core/policy/policy.ts";
import { settingName } from "../core/stores/insight/rules.ts";
import { loadYaml } from "./load-yaml.cjs";
import {
  isTable,
  optionsOf,
  problemIn,
  problemInDefaults,
  problemsInEndpoints,
} from "./compile.ts";
import { errorOf, type Path, type PlacedProblem, type Problem } from "./problem.ts";
import { rulesSchema, TOP_NAMES } from "./schema.ts";

/** The checked content of a rules file. */
export interface Rules {
  readonly file: string;
  /** The version in the file. If undefined, the file's modification time is the version. */
  readonly version: number | undefined;
  /** A digest of the file's content. Comments and spaces do not change it. */
  readonly digest: string;
  readonly buckets: ReadonlyMap<string, PolicyOptions>;
  /** The settings of queues and endpoints. The map keys are the results of `settingName`. */
  readonly settings: ReadonlyMap<string, object>;
}

/**
 * The most characters of a rules file. A file with ten thousand buckets has a few hundred thousand
 * characters.
 */
const MOST_BYTES = 16_000_000;

/**
 * Reads and checks a rules file.
 *
 * @throws {@link InvalidOptionError} when the text is not YAML, or contains anything that can never
 * work. The error contains the file, line, column, path, value and remedy.
 */
export function readRules(file: string, text: string): Rules {
  const { rules, problems } = checkRules(file, text);
  if (rules === undefined) throw errorOf(file, problems);
  return rules;
}

/** Checks a rules file. Returns the rules, or all problems if there are any. */
export function checkRules(
  file: string,
  text: string,
): { readonly rules: Rules | undefined; readonly problems: readonly PlacedProblem[] } {
  const start = { line: 1, column: 1, path: [], value: undefined };
  if (text.length > MOST_BYTES) {
    const remedy = `the file has more than ${MOST_BYTES} characters; remove some entries`;
    return { rules: undefined, problems: [{ ...start, remedy }] };
  }
  const { data, positionOf, problems: unread } = parse(text);
  if (unread.length > 0) return { rules: undefined, problems: unread };
  const problems = problemsOf(data).map(({ isOfName, ...problem }) => ({
    ...problem,
    ...positionOf(problem.path, isOfName === true),
  }));
  if (problems.length > 0) {
    const inOrder = problems.toSorted((a, b) => a.line - b.line || a.column - b.column);
    return { rules: undefined, problems: inOrder };
  }
  const { version, tiers, defaults = {}, buckets, ...sections } = rulesSchema().parse(data);
  const { queues = {}, endpoints = {} } = sections;
  const entries = Object.entries(buckets).map(
    ([name, entry]) => [name, optionsOf({ ...defaults, ...entry }, tiers)] as const,
  );
  const digest = createHash("sha256").update(JSON.stringify(data)).digest("hex").slice(0, 32);
  const settings = new Map<string, object>([
    ...Object.entries(queues).map(([name, each]) => [settingName("queue", name), each] as const),
    ...Object.entries(endpoints).map(
      ([name, each]) => [settingName("endpoints", name), each] as const,
    ),
  ]);
  return { rules: { file, version, digest, buckets: new Map(entries), settings }, problems: [] };
}

interface Parsed {
  readonly data: unknown;
  /** Returns the position of the value at a path, or of the nearest existing parent. */
  readonly positionOf: (
    path: Path,
    isOfName: boolean,
  ) => { readonly line: number; readonly column: number };
  readonly problems: readonly PlacedProblem[];
}

/** Parses a file as YAML. JSON files work too, because JSON is valid YAML. */
function parse(text: string): Parsed {
  const { parseDocument, LineCounter: Lines, isMap, isSeq, isScalar, visit } = loadYaml();
  const lines: LineCounter = new Lines();
  const document: Document = parseDocument(text, {
    lineCounter: lines,
    prettyErrors: false,
    merge: true,
    stringKeys: true,
    // The YAML library's own check for duplicate names compares each name with all others, which is
    // too slow.
    uniqueKeys: false,
  });
  const at = (offset: number) => {
    const { line, col } = lines.linePos(offset);
    return { line, column: col };
  };
  const nameOf = (key: unknown): string => String(isScalar(key) ? key.value : key);
  const problemAt = (offset: number, remedy: string): PlacedProblem => ({
    path: [],
    value: undefined,
    remedy: withoutStop(remedy),
    ...at(offset),
  });
  const positionOf: Parsed["positionOf"] = (path, isOfName) => {
    let node = document.contents as Node | null | undefined;
    let place = node?.range?.[0] ?? 0;
    for (const [depth, part] of path.entries()) {
      let key: unknown;
      if (isMap(node)) {
        const pair = node.items.find((item: Pair) => nameOf(item.key) === String(part));
        if (pair === undefined) break;
        ({ key } = pair);
        node = pair.value as Node | null;
      } else if (isSeq(node)) node = node.items[Number(part)] as Node | undefined;
      else break;
      const keyAt = (key as Node | undefined)?.range?.[0];
      const isLast = depth === path.length - 1;
      place = (isLast && isOfName ? keyAt : undefined) ?? node?.range?.[0] ?? keyAt ?? place;
    }
    return at(place);
  };
  const problems = [...document.errors, ...document.warnings].map(({ pos, message }) =>
    problemAt(pos[0], message),
  );
  visit(document, {
    Map(_at, { items }) {
      const names = new Set<string>();
      for (const { key } of items) {
        const name = nameOf(key);
        const offset = (key as Node).range?.[0] ?? 0;
        if (names.has(name)) problems.push(problemAt(offset, `${name} appears twice`));
        // A JavaScript object would ignore a field with this name.
        if (name === "__proto__") problems.push(problemAt(offset, `give ${name} another name`));
        names.add(name);
      }
    },
  });
  if (problems.length > 0) return { data: undefined, positionOf, problems };
  try {
    return { data: document.toJS() as unknown, positionOf, problems };
  } catch (error) {
    // Converting the YAML to values fails, for example, if nested aliases expand to millions of
    // values.
    return { data: undefined, positionOf, problems: [problemAt(0, (error as Error).message)] };
  }
}

/** Returns all problems in the parsed data of a rules file. */
function problemsOf(data: unknown): Problem[] {
  if (!isTable(data)) {
    const remedy = "give buckets, such as buckets: { api: { rate: 50/s } }";
    return [{ path: [], value: data ?? undefined, remedy }];
  }
  const read = rulesSchema().safeParse(data);
  const issues = read.success
    ? []
    : read.error.issues.flatMap((issue) => problemsOfIssue(data, issue));
  // A problem in the defaults or in a tier would be reported again for each bucket, so only that
  // problem is reported.
  const inAll = issues.filter(({ path }) => path[0] === "defaults" || path[0] === "tiers");
  if (inAll.length > 0) return inAll;
  const inTiers = tierProblems(data);
  if (inTiers.length > 0) return inTiers;
  const { defaults, tiers } = data;
  const inDefaults = isTable(defaults)
    ? problemInDefaults(defaults, isTable(tiers) ? tiers : {})
    : undefined;
  if (inDefaults !== undefined) return [inDefaults];
  const inEndpoints = isTable(data["endpoints"])
    ? Object.entries(data["endpoints"]).flatMap(([name, each]) =>
        problemsInEndpoints(["endpoints", name], each),
      )
    : [];
  const byEntry = entryProblems(data);
  // For bucket entries, the messages of `bucket()` are better than the schema's.
  const reported = new Set(byEntry.map(({ path }) => path[1]));
  const others = issues.filter(({ path }) => path[0] !== "buckets" || !reported.has(path[1]!));
  const places = new Set(inEndpoints.map(({ path }) => path.join()));
  return [...byEntry, ...inEndpoints, ...others.filter(({ path }) => !places.has(path.join()))];
}

/** Checks the tiers separately, because a tier may not be used by any bucket yet. */
function tierProblems({ tiers }: Record<string, unknown>): Problem[] {
  if (!isTable(tiers)) return [];
  return Object.entries(tiers).flatMap(([name, tier]): Problem[] => {
    const problem = isTable(tier) ? problemIn(["tiers", name], tier) : undefined;
    return problem === undefined ? [] : [problem];
  });
}

function entryProblems({ tiers, defaults, buckets }: Record<string, unknown>): Problem[] {
  if (!isTable(buckets)) return [];
  const named = isTable(tiers) ? tiers : {};
  const base = isTable(defaults) ? defaults : {};
  return Object.entries(buckets).flatMap(([name, entry]): Problem[] => {
    const path = ["buckets", name];
    if (entry !== null && !isTable(entry)) {
      return [{ path, value: entry, remedy: "give limits, such as { rate: 50/s }" }];
    }
    const problem = problemIn(path, { ...base, ...entry }, named);
    return problem === undefined ? [] : [problem];
  });
}

function problemsOfIssue(data: unknown, issue: z.core.$ZodIssue): Problem[] {
  const path = issue.path.map((part) => (typeof part === "number" ? part : String(part)));
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((name) => {
      const names = path.length === 0 ? TOP_NAMES : namesAt(path);
      const known = notLive(path, name);
      const near = closest(name, names);
      const hint =
        near === undefined ? `the names are ${names.join(", ")}` : `did you mean ${near}?`;
      const remedy =
        known ?? (names.length > 0 ? `there is no such name; ${hint}` : "there is no such option");
      return {
        path: [...path, name],
        value: valueAt(data, [...path, name]),
        remedy,
        isOfName: true,
      };
    });
  }
  if (issue.code === "invalid_union" && issue.errors.length > 0) {
    const [deepest] = issue.errors.toSorted((a, b) => depthOf(b) - depthOf(a));
    const isDeep = depthOf(deepest!) > 0;
    if (isDeep) {
      return deepest!.flatMap((each) =>
        problemsOfIssue(data, { ...each, path: [...issue.path, ...each.path] }),
      );
    }
  }
  if (issue.code === "invalid_key") {
    const remedy = issue.issues[0]?.message ?? issue.message;
    return [{ path, value: path.at(-1), remedy, isOfName: true }];
  }
  return [{ path, value: valueAt(data, path), remedy: remedyOf(issue, path) }];
}

const LIMIT_NAMES = ["rate", "concurrency"];
const SENDER_NAMES = ["perTenant", "perEndpoint", "ceiling", "tenants", "budgetWarnings"];

/**
 * Returns the names that are allowed in an entry. Bucket entries are not included, because
 * `bucket()` reports their unknown names.
 */
function namesAt(path: Path): readonly string[] {
  const [section] = path;
  if (section === "queues" && path.length === 2) return SETTING_NAMES;
  if (section !== "endpoints" || path.length < 2) return [];
  if (path.length === 2) return SENDER_NAMES;
  if (path[2] === "budgetWarnings") return ["tenant"];
  // A path with four parts is the entry of one tenant. A tenant has more fields than limits.
  return path.length === 4 && path[2] === "tenants"
    ? [...LIMIT_NAMES, "perEndpoint", "ceiling", "endpoints"]
    : LIMIT_NAMES;
}

/** The queue options that cannot change while the queue is open, with the reason for each. */
const NOT_LIVE: Readonly<Record<string, string>> = {
  paused: "pause and resume it with queue.pause() and queue.resume(), or with sluice pause --queue",
  bucket: "queued jobs count against the limits of their bucket; only code can set it",
  ordered: "queued jobs are in lanes of the old order; only code can set it",
  schema: "only code can set it",
  maxJobBytes: "only code can set it, because producers and workers must agree",
  ownConnections: "connections are opened with the queue; only code can set it",
};

function notLive(path: Path, name: string): string | undefined {
  if (path[0] === "endpoints" && (name === "burst" || name === "limits")) {
    return "only code can set it; in the file, tenants and endpoints have a rate and a concurrency";
  }
  return path[0] === "queues" && path.length === 2 ? NOT_LIVE[name] : undefined;
}

function depthOf(issues: readonly z.core.$ZodIssue[]): number {
  return Math.min(...issues.map(({ path }) => path.length));
}

/** Rewrites zod's messages for operators, because zod writes them for programmers. */
function remedyOf(issue: z.core.$ZodIssue, path: Path): string {
  if (path.length === 1 && path[0] === "buckets") {
    return "give the limits of buckets by name, such as { api: { rate: 50/s } }";
  }
  return issue.message.replace(/^Invalid input: expected/, "give").replace(/, received .*$/, "");
}

function valueAt(data: unknown, path: Path): unknown {
  let value = data;
  for (const part of path) value = (value as Record<string, unknown> | null | undefined)?.[part];
  return value;
}
