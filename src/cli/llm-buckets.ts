/** Reads `--llm`, which sets the LLM API of a bucket and the limits of the account. */
import { InvalidOptionError } from "../core/errors.ts";
import type { LlmBucket } from "../entries/llm/index.ts";
import type { ForwardOptions } from "../server/forward/options.ts";
import type { Sluice } from "../sluice/create-sluice.ts";

/** One value of `--llm`: `"gpt=openai,requests=500/min,tokens=200000/min"`. */
interface Written {
  readonly text: string;
  readonly bucket: string;
  readonly provider: string;
  readonly options: Readonly<Record<string, string | number | boolean>>;
}

const EXAMPLE = "openai=openai,requests=500/min,tokens=200000/min";

/**
 * Reads the values of `--llm`. Returns a function that declares the buckets.
 *
 * @throws {@link InvalidOptionError} when a value is invalid, or no `--forward` uses the bucket.
 */
export async function readLlmBuckets(
  texts: readonly string[],
  given: Readonly<Record<string, ForwardOptions>>,
): Promise<(sluice: Sluice) => void> {
  const { anthropic, azure, bedrock, gemini, openai } = await import("../entries/llm/index.ts");
  const presets: Readonly<Record<string, (options: never) => LlmBucket>> = {
    openai,
    azure,
    anthropic,
    gemini,
    bedrock,
  };
  const forwards = Object.keys(given);
  const buckets = new Map<string, LlmBucket>();
  for (const { text, bucket, provider, options } of texts.map(read)) {
    if (!forwards.includes(bucket)) {
      const others = forwards.length === 0 ? "give one" : `there are ${forwards.join(", ")}`;
      throw wrong(text, `name the bucket of a --forward; ${others}`);
    }
    if (given[bucket]?.members !== undefined) {
      throw wrong(
        text,
        "the members of a pool need their own limits; declare them in code or rules",
      );
    }
    if (buckets.has(bucket)) throw wrong(text, `bucket ${bucket} has a --llm already`);
    if (!Object.hasOwn(presets, provider)) {
      throw wrong(text, `name an API: ${Object.keys(presets).join(", ")}`);
    }
    buckets.set(bucket, presets[provider]!(options as never));
  }
  return (sluice) => {
    for (const [name, options] of buckets) sluice.bucket(name, options);
  };
}

function read(text: string): Written {
  const [head = "", ...rest] = text.split(",");
  const [bucket, provider] = pairIn(head, text);
  const options = rest.map((part) => {
    const [name, value] = pairIn(part, text);
    return [name, valueOf(value)] as const;
  });
  return { text, bucket, provider, options: Object.fromEntries(options) };
}

function pairIn(part: string, text: string): readonly [string, string] {
  const [, name, value] = /^([^=]+)=(.+)$/.exec(part) ?? [];
  if (name !== undefined && value !== undefined) return [name, value];
  throw wrong(text, `give a bucket, an API and its limits, such as ${EXAMPLE}`);
}

function valueOf(text: string): string | number | boolean {
  if (text === "true" || text === "false") return text === "true";
  return /^\d+(?:\.\d+)?$/.test(text) ? Number(text) : text;
}

function wrong(value: string, remedy: string): InvalidOptionError {
  return new InvalidOptionError({ where: "sluice serve", option: "--llm", value, remedy });
}
