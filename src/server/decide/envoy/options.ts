import * as z from "zod";
import { wholeNumber } from "../../../core/input/options.ts";
import type { Key, NamedKeys } from "../../../core/key-path.ts";
import type { Cost } from "../../../throttle/costs.ts";

/** One descriptor of a request of Envoy's. */
export interface RateLimitDescriptor {
  readonly domain: string;
  readonly entries: readonly { readonly key: string; readonly value: string }[];
  /** The limit that Envoy names for it, such as 50 requests a `"1min"`; undefined if it names none. */
  readonly limit?:
    | { readonly requests: number; readonly per: "1s" | "1min" | "1h" | "1d" }
    | undefined;
  /** How many calls it counts for: `hits_addend`, and 1 where Envoy sends none. */
  readonly hits: number;
}

/** What a descriptor draws. */
export interface DescriptorDraw {
  readonly bucket: string;
  readonly key?: Key | undefined;
  readonly keys?: NamedKeys | undefined;
  /** Defaults to the hits of the descriptor, as calls. */
  readonly cost?: Cost | undefined;
}

/** Answers Envoy's `ShouldRateLimit` over gRPC, on a port of its own. */
export interface GrpcOptions {
  /** 0 takes a free one. Defaults to 8081. */
  readonly port?: number | undefined;
  /** What a descriptor gets whose bucket no process has declared. Defaults to `"allow"`, as with Envoy's own service. */
  readonly unknown?: "allow" | "refuse" | undefined;
  /**
   * What a descriptor draws; undefined lets it pass without a limit. Defaults to a bucket of its own limit, if it names one,
   * such as `"edge (50 each 1min)"`, and else to the bucket with the name of the domain,
   * and as its key the values of the entries, the widest first; or, if `perKey` of that bucket has names, each entry as the
   * key of its name.
   */
  readonly draw?: ((descriptor: RateLimitDescriptor) => DescriptorDraw | undefined) | undefined;
}

/** What was given, with all defaults. */
export interface ReadGrpcOptions extends GrpcOptions {
  readonly port: number;
  readonly unknown: "allow" | "refuse";
}

const A_CHOICE = { error: 'give "allow" or "refuse"' };

/** @internal */
export const GRPC: z.ZodType<ReadGrpcOptions> = z.strictObject({
  port: wholeNumber(0, 65_535, "as a port").default(8_081),
  unknown: z.enum(["allow", "refuse"], A_CHOICE).default("allow"),
  draw: z
    .custom<GrpcOptions["draw"]>((value) => typeof value === "function", {
      error: "give a function of a descriptor",
    })
    .optional(),
});
