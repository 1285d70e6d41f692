import type { z } from "zod";

/** One variable of the environment. */
interface Variable {
  readonly name: string;
  /** Reads its text. */
  readonly as: z.ZodType;
  /** Its value is never shown. Defaults to false. */
  readonly isSecret?: boolean;
}

/** The variables of a worker, by the names that their values have in the code. */
export type Variables = Readonly<Record<string, Variable>>;

export type SettingsOf<Given extends Variables> = {
  readonly [Name in keyof Given]: z.output<Given[Name]["as"]>;
};

/** Thrown when a variable can never work; the message has a line for each of them. */
export class SettingsError extends Error {
  override readonly name = "SettingsError";
}

/**
 * Reads the environment once; an empty variable counts as one that is not set.
 *
 * @throws {@link SettingsError} naming each variable that can never work, and the remedy.
 */
export function readSettings<Given extends Variables>(
  environment: NodeJS.ProcessEnv,
  variables: Given,
): SettingsOf<Given> {
  const settings: Record<string, unknown> = {};
  const problems: string[] = [];
  for (const [setting, variable] of Object.entries(variables)) {
    const text = environment[variable.name] || undefined;
    const read = variable.as.safeParse(text);
    if (read.success) settings[setting] = read.data;
    else problems.push(describeProblem(variable, text, read.error.issues[0]!.message));
  }
  if (problems.length > 0) throw new SettingsError(problems.join("\n"));
  return Object.freeze(settings) as SettingsOf<Given>;
}

/** What a log must never show: secret values, and passwords within them if they are addresses. */
export function secretsOf(environment: NodeJS.ProcessEnv, variables: Variables): string[] {
  const secret = Object.values(variables).filter(({ isSecret }) => isSecret === true);
  return secret.flatMap(({ name }) => {
    const text = environment[name] ?? "";
    const { password = "" } = URL.canParse(text) ? new URL(text) : {};
    return [text, password, decode(password)].filter((value) => value !== "");
  });
}

function describeProblem({ name, isSecret }: Variable, text: string | undefined, remedy: string) {
  const what = isSecret === true ? "cannot be used" : `is ${JSON.stringify(text)}`;
  return `${name} ${text === undefined ? "is not set" : what}; ${remedy}.`;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
