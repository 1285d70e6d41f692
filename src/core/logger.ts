/** Where warnings and errors go that no caller waits for; a pino logger fits. */
export interface Logger {
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}
