/** Provides the forms and the reasons of waits as a module for the page of the board. */
import { OPERATIONS } from "../../operations/index.ts";
import { WAIT_REASONS } from "../../operations/text.ts";

export function formsModule(): string {
  const forms = OPERATIONS.flatMap(({ name, undoable: hasUndo, form, http }) => {
    const action = http.path.split("/").at(-1);
    return form === undefined ? [] : [[name, { ...form, action, undoable: hasUndo }]];
  });
  const undoable = OPERATIONS.flatMap((each) => (each.undoable ? [each.name.split(".")[1]] : []));
  return `export const FORMS = ${JSON.stringify(Object.fromEntries(forms))};
/** The changes that can be undone, by their names in the log. */
export const UNDOABLE = new Set(${JSON.stringify(undoable)});
/** Why a job waits, as a clause. */
export const WAIT_REASONS = ${JSON.stringify(WAIT_REASONS)};
`;
}
