/**
 * Offers the operations as tools of the Model Context Protocol: JSON-RPC 2.0 with `initialize`,
 * `ping`, `tools/list` and `tools/call`. The caller of this module transports the messages.
 */
import { InvalidOptionError, SluiceError } from "../../core/errors.ts";
import { OPERATIONS } from "../../operations/index.ts";
import {
  inputSchemaOf,
  perform,
  RefusedError,
  type AnyOperation,
  type Door,
} from "../../operations/operation.ts";
import { sayInJson } from "../../operations/text.ts";
import { readVersion } from "../../insight/version.ts";

/**
 * The supported protocol versions, newest first. A client that asks for another version gets the
 * newest. Version 2025-03-26 is missing, because it requires batches.
 */
const VERSIONS = ["2025-06-18", "2024-11-05"];
const ERRORS = { parse: -32_700, request: -32_600, method: -32_601, params: -32_602 } as const;

interface Reply {
  readonly jsonrpc: "2.0";
  readonly id: unknown;
  readonly result?: object;
  readonly error?: { readonly code: number; readonly message: string };
}

interface Message {
  readonly jsonrpc?: unknown;
  readonly id?: unknown;
  readonly method?: unknown;
  readonly params?: Readonly<Record<string, unknown>> | undefined;
}

export interface McpDoor extends Door {
  /** Reports an error that the caller must not see. */
  readonly fail: (error: unknown) => void;
}

/** Returns the reply to one message. Returns undefined for a notification. */
export async function replyTo(message: unknown, door: McpDoor): Promise<Reply | undefined> {
  const { jsonrpc, id, method, params } = (message ?? {}) as Message;
  if (jsonrpc !== "2.0" || typeof method !== "string") {
    return refusal(id, "request", "This is not a JSON-RPC 2.0 request.");
  }
  if (id === undefined) return undefined;
  const answered = (result: object): Reply => ({ jsonrpc: "2.0", id, result });
  switch (method) {
    case "initialize": {
      const asked = String(params?.["protocolVersion"]);
      return answered({
        protocolVersion: VERSIONS.includes(asked) ? asked : VERSIONS[0],
        capabilities: { tools: {} },
        serverInfo: { name: "sluice", version: readVersion() },
      });
    }
    case "ping":
      return answered({});
    case "tools/list":
      return answered({ tools: toolsOf(door).map(describe) });
    case "tools/call": {
      const called = toolsOf(door).find((each) => nameOf(each) === params?.["name"]);
      if (called === undefined) {
        return refusal(id, "params", `There is no tool ${JSON.stringify(params?.["name"])}.`);
      }
      return answered(await call(called, door, (params?.["arguments"] ?? {}) as object));
    }
    default:
      return refusal(id, "method", `There is no method ${JSON.stringify(method)}.`);
  }
}

/** Returns the reply to a text that is not JSON. */
export function unreadable(): Reply {
  return refusal(null, "parse", "This is not valid JSON.");
}

function refusal(id: unknown, why: keyof typeof ERRORS, message: string): Reply {
  return { jsonrpc: "2.0", id: id ?? null, error: { code: ERRORS[why], message } };
}

/** Returns the operations that the caller may use. */
function toolsOf({ caller }: Door): readonly AnyOperation[] {
  return OPERATIONS.filter(({ needs }) => caller.mayUse(needs));
}

/**
 * Replaces the dot of an operation's name, because many clients accept only letters, digits, `_`
 * and `-`.
 */
function nameOf({ name }: AnyOperation): string {
  return name.replace(".", "_");
}

function describe(each: AnyOperation): object {
  const { summary, needs, undoable } = each;
  const isRead = needs === "view";
  const back = isRead ? "" : undoable ? " It can be undone." : " It cannot be undone.";
  return {
    name: nameOf(each),
    description: `${summary}.${back}`,
    inputSchema: { type: "object", ...inputSchemaOf(each), additionalProperties: false },
    // Omit `destructiveHint`, because clients treat a tool without it as destructive. Disabling an
    // endpoint, for example, also fails its pending messages.
    annotations: { readOnlyHint: isRead },
  };
}

/**
 * Runs an operation. A refusal becomes a result, so that a model can read and correct it. Other
 * errors are only reported to `fail`.
 */
async function call(called: AnyOperation, door: McpDoor, given: object): Promise<object> {
  try {
    assertBounds(called, given);
    const result = await perform(called, door, given as Readonly<Record<string, unknown>>);
    return { content: [{ type: "text", text: JSON.stringify(result, sayInJson) }] };
  } catch (error) {
    const isRefusal = error instanceof SluiceError || error instanceof RefusedError;
    if (!isRefusal) door.fail(error);
    const text = isRefusal ? error.message : "The server failed; its log says why.";
    return { content: [{ type: "text", text }], isError: true };
  }
}

/**
 * Enforces the upper bounds that only the command line may exceed.
 *
 * @throws {@link InvalidOptionError} when a number is above the maximum of its schema.
 */
function assertBounds(called: AnyOperation, given: object): void {
  const { properties } = inputSchemaOf(called);
  for (const [name, value] of Object.entries(given)) {
    const { maximum = Infinity } = (properties[name] ?? {}) as { readonly maximum?: number };
    if (typeof value === "number" && value > maximum) {
      const remedy = `give ${maximum} at most`;
      throw new InvalidOptionError({ where: called.name, option: name, value, remedy });
    }
  }
}
