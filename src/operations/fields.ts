/** Fields that several operations share, with their command-line options. */
import * as z from "zod";
import { JOB_STATES } from "../queue/job.ts";

/** A command-line option, and how its value becomes the value of a field. */
export interface OptionForm {
  /** The flags of the option: `"--for <time>"`. */
  readonly flags: string;
  readonly reads: "duration" | "ago" | "names" | "text";
  /**
   * The help text. It describes the form on the command line, which may differ from the form in
   * JSON.
   */
  readonly help: string;
}

/**
 * The fields whose options have a special form. All other fields are `--name <text>`, `--name
 * <count>` or `--name`, depending on their type.
 */
export const OPTION_FORMS: z.core.$ZodRegistry<OptionForm> = z.registry<OptionForm>();

function field<Schema extends z.ZodType>(schema: Schema, form: OptionForm): Schema {
  OPTION_FORMS.add(schema, form);
  return schema;
}

const text = (most = 1_024): z.ZodString => z.string().max(most);

/** The schema of an optional field. */
type Field<Value> = z.ZodOptional<z.ZodType<Value>>;

export const NAME: z.ZodString = text();

export const KEY: Field<string | string[] | Record<string, string>> = field(
  z
    .union([z.string(), z.array(z.string()), z.record(z.string(), z.string())])
    .optional()
    .describe("One key: its name, the names of a path, or an object of keys by name."),
  { flags: "--key <names...>", reads: "names", help: "one key, or the names of a path" },
);

export const FOR_MS: Field<number> = field(
  z.int().min(1).optional().describe("The duration. Defaults to no end."),
  {
    flags: "--for <time>",
    reads: "duration",
    help: "the duration, such as 15m; defaults to no end",
  },
);

/** A field for a time in ms since 1970. On the command line, the value is a duration before now. */
export const agoField = (name: string, about: string, help: string): Field<number> =>
  field(z.int().min(0).optional().describe(about), {
    flags: `--${name} <time>`,
    reads: "ago",
    help,
  });

/** A field for a duration in ms. */
export const durationField = (name: string, about: string, help: string): Field<number> =>
  field(z.int().min(0).optional().describe(about), {
    flags: `--${name} <time>`,
    reads: "duration",
    help,
  });

export const GENERATION: Field<number> = z
  .int()
  .min(0)
  .optional()
  .describe("The generation from the status. The change fails if there was another change since.");

export const REASON: Field<string> = z
  .string()
  .optional()
  .describe("The reason, which the change log shows.");

const BY = field(
  z.string().optional().describe("The author of the change. Defaults to the name of the caller."),
  {
    flags: "--by <name>",
    reads: "text",
    help: "the author; defaults to $SLUICE_BY, or to the user",
  },
);

/** The author and reason of a change, for operations in which the field `reason` is a filter. */
export const BY_WHOM: Readonly<Record<"by" | "why", Field<string>>> = {
  by: BY,
  why: z
    .string()
    .optional()
    .describe("The reason, which the change log shows. Here, `reason` is a filter."),
};

export const BY_HAND: Readonly<Record<"by" | "reason" | "why", Field<string>>> = {
  by: BY,
  reason: REASON,
  why: z
    .string()
    .optional()
    .describe("Deprecated: the old name of reason.")
    .meta({ deprecated: true }),
};

/** The fields for resuming a bucket or a queue, and the form on the board. */
export const RESUMING = { key: KEY, generation: GENERATION, ...BY_HAND } as const;
export const RESUME_FORM = {
  title: "Resume {name}",
  fields: ["reason"],
  confirm: "Resume",
  done: "{name} is running again.",
} as const;

/** The fields for pausing a bucket or a queue, and the form on the board. */
export const PAUSING = { forMs: FOR_MS, ...RESUMING } as const;
export const PAUSE_FORM = {
  title: "Pause {name}",
  fields: ["forMs", "reason"],
  confirm: "Pause",
  done: "{name} is paused.",
  danger: true,
} as const;

export const DATA: z.ZodDefault<z.ZodBoolean> = field(
  z
    .boolean()
    .default(false)
    .describe('Adds the data, which may be private. Needs a token of the role "act".'),
  { flags: "--data", reads: "text", help: "with the data, which may be private" },
);

/**
 * A field for the most results. `most` applies to HTTP and MCP. The command line allows up to
 * 1,000.
 */
export const limitField = (usual: number, most: number): z.ZodDefault<z.ZodInt> =>
  z.int().min(1).max(1_000).default(usual).describe("The most results.").meta({ maximum: most });

export const CURSOR: Field<string> = text(4_096)
  .optional()
  .describe("The cursor of the previous page.");

export const STATE: Field<string> = z
  .enum(JOB_STATES as unknown as readonly ["waiting", ...string[]], {
    error: `give one of ${JOB_STATES.map((state) => `"${state}"`).join(", ")}`,
  })
  .optional()
  .describe(`Only jobs in this state: ${JOB_STATES.join(", ")}.`);

/** The fields that select dead letters. */
export const FAILED_FILTER: {
  readonly key: typeof KEY;
  readonly name: Field<string>;
  readonly reason: Field<string>;
  readonly code: Field<string>;
  readonly group: Field<string>;
  readonly since: Field<number>;
} = {
  key: KEY,
  name: NAME.optional().describe("The name of the job."),
  reason: NAME.optional().describe("A part of the reason, or of an error that caused it."),
  code: NAME.optional().describe("The code of the error, or of an error that caused it."),
  group: NAME.optional().describe("The id of a group of dead letters with one error."),
  since: agoField(
    "since",
    "The earliest failure, in ms since 1970.",
    "those that failed in this period, such as 2h",
  ),
};

export const POLICY: z.ZodType<object | "code"> = z
  .union([z.looseObject({}), z.literal("code")])
  .describe('Options of a bucket, such as { "rate": "20/s" }, or "code".');

export const PREVIEW: {
  readonly policy: Field<object>;
  readonly pausedForMs: Field<number | "forever">;
} = {
  policy: z.looseObject({}).optional().describe('Options of a bucket, such as { "rate": "20/s" }.'),
  pausedForMs: z
    .union([z.int().min(0), z.literal("forever")])
    .optional()
    .describe('The duration of the pause: ms, "forever", or 0 for none.'),
};

export const SENDER: z.ZodDefault<z.ZodString> = NAME.default("webhooks").describe(
  "The name of the webhook sender.",
);
