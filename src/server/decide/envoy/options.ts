import * as z from "zod";
import { wholeNumber } from "../../../core/input/options.ts";
import type { Key, NamedKeys } from "../../../core/key-path.ts";
import type { Cost } from "../../../throttle/costs.ts";

/** One descriptor of an Envoy request. */
export interface RateLimitDescriptor {
  readonly domain: string;
  readonly entries: readonly { readonly key: string; readonly value: string }[];
  /**
   * The limit that Envoy sets for this descriptor, such as 50 requests per `"1min"`. Undefined if
   * Envoy sets none.
   */
  readonly limit?:
    | { readonly requests: number; readonly per: "1s" | "1min" | "1h" | "1d" }
    | undefined;
  /** The number of calls: `hits_addend`, or 1 if Envoy sends none. */
  readonly hits: number;
}

/** The bucket, key and cost that a descriptor draws. */
export interface DescriptorDraw {
  readonly bucket: string;
  readonly key?: Key | undefined;
  readonly keys?: NamedKeys | undefined;
  /** The cost of the draw. Defaults to the descriptor's `hits`, in calls. */
  readonly cost?: Cost | undefined;
}

/** Answers Envoy's `ShouldRateLimit` over gRPC on a separate port. */
export interface GrpcOptions {
  /** The port; 0 picks a free port. Defaults to 8081. */
  readonly port?: number | undefined;
  /**
   * The decision for a descriptor whose bucket no process has declared. Defaults to `"allow"`, like
   * Envoy's own service.
   */
  readonly unknown?: "allow" | "refuse" | undefined;
  /**
   * Maps a descriptor to a draw. If the function returns undefined, the descriptor is allowed
   * without a limit.
   *
   * By default, a descriptor with its own limit uses a bucket for that limit, such as `"edge (50
   * each 1min)"`. Any other descriptor uses the bucket that is named after the domain. The values
   * of the descriptor's entries form the key, the widest first. If the bucket's `perKey` has names,
   * each entry is the key with its name.
   */
  readonly draw?: ((descriptor: RateLimitDescriptor) => DescriptorDraw | undefined) | undefined;
}

/** The options with all defaults filled in. */
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
