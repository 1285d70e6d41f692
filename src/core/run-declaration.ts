/** What is declared of a schedule while a run of it is due and waits: both are to have it, or neither. */
export interface RunDeclaration {
  /** The schedule's name. */
  readonly name: string;
  /** The run, and for when it was planned, in ms since 1970. */
  readonly id: string;
  readonly dueAtMs: number;
  /** Fields that the schedule and the run are to have, as BullMQ stores them. */
  readonly schedule: Readonly<Record<string, string | number>>;
  readonly run: Readonly<Record<string, string | number>>;
}
