import type { DrawReply } from "../core/store.ts";
import type { Script } from "./script.ts";
import { slotsDraw, type SlotsDraw } from "./scripts/slots-draw.ts";
import { isPlainTry, slotsTry } from "./scripts/slots-try.ts";

/** Draws by the script that is made for such a request; what that finds to be unusual, by the one that knows all. */
export async function drawSlots(
  run: <Output>(script: Script<SlotsDraw, Output>, input: SlotsDraw) => Promise<Output>,
  input: SlotsDraw,
): Promise<DrawReply> {
  return (isPlainTry(input) ? await run(slotsTry, input) : undefined) ?? run(slotsDraw, input);
}
