/** Reads `--forward`, `--forward-member` and `--forward-timeout`, which set the reverse proxies of a server. */
import { InvalidOptionError } from "../core/errors.ts";
import type { ForwardOptions } from "../server/forward/options.ts";
import { parseDuration } from "./io.ts";

export interface ForwardFlags {
  /** Each a name and a URL: `"gpt=https://api.openai.com"`. */
  readonly forward?: readonly string[];
  /** Each a member of a forward's pool, its URL, and the variables with its headers. */
  readonly forwardMember?: readonly string[];
  readonly forwardTimeout?: string;
}

type Environment = Readonly<Record<string, string | undefined>>;

const FORWARD = "give a name and a URL, such as openai=https://api.openai.com";
const MEMBER =
  "give the forward, the member and its URL, such as gpt.east=https://east.example.com,api-key=EAST_KEY";

/** @throws {@link InvalidOptionError} when a flag cannot be read, or a variable with a header is not set. */
export function readForwardFlags(
  { forward = [], forwardMember = [], forwardTimeout }: ForwardFlags,
  env: Environment,
): Readonly<Record<string, ForwardOptions>> {
  const timeoutMs =
    forwardTimeout === undefined ? undefined : parseDuration("--forward-timeout", forwardTimeout);
  if (timeoutMs !== undefined && forward.length === 0) {
    throw wrong("--forward-timeout", forwardTimeout, "give it beside a --forward");
  }
  const urls = new Map(forward.map((text) => pairIn(text, "--forward", FORWARD)));
  const members = new Map<string, [string, Member][]>();
  for (const text of forwardMember) {
    const { of, name, member } = readMember(text, [...urls.keys()], env);
    members.set(of, [...(members.get(of) ?? []), [name, member]]);
  }
  const forwards = [...urls].map(([name, to]) => {
    const own = members.get(name);
    return [name, { to, timeoutMs, ...(own && { members: Object.fromEntries(own) }) }] as const;
  });
  return Object.fromEntries(forwards);
}

type Member = Exclude<NonNullable<ForwardOptions["members"]>[string], string>;

function readMember(text: string, forwards: readonly string[], env: Environment) {
  const [address = "", ...variables] = text.split(",");
  const [path, to] = pairIn(address, "--forward-member", MEMBER);
  const of = forwards.find((each) => path.startsWith(`${each}.`));
  if (of === undefined) {
    const known = forwards.length === 0 ? "give one" : `there are ${forwards.join(", ")}`;
    throw wrong("--forward-member", text, `begin with the name of a --forward; ${known}`);
  }
  // Credentials come from the environment, because any user of the machine can read the arguments of a process.
  const headers = variables.map((each) => {
    const [header, variable] = pairIn(each, "--forward-member", MEMBER);
    const value = env[variable] ?? "";
    if (value !== "") return [header, value] as const;
    const remedy = `set the environment variable ${variable} to the value of the header ${header}`;
    throw wrong("--forward-member", text, remedy);
  });
  const member: Member = { to, headers: Object.fromEntries(headers) };
  return { of, name: path.slice(of.length + 1), member };
}

function pairIn(text: string, option: string, remedy: string): readonly [string, string] {
  const [, name, value] = /^([^=]+)=(.+)$/.exec(text) ?? [];
  if (name !== undefined && value !== undefined) return [name, value];
  throw wrong(option, text, remedy);
}

function wrong(option: string, value: unknown, remedy: string): InvalidOptionError {
  return new InvalidOptionError({ where: "sluice serve", option, value, remedy });
}
