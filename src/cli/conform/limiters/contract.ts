/** A number of calls in a period of whole seconds. */
export interface Rate {
  readonly calls: number;
  readonly seconds: number;
}

/** The limits of a scenario. Each limiter declares them in its own terms. */
export interface Plan {
  /** The limit of all calls together, or of each account. */
  readonly rate: Rate;
  /** The limit of each key. Defaults to none. */
  readonly perKey?: Rate;
  /** The accounts that share the work. The limiter chooses one for each call. Defaults to none. */
  readonly members?: readonly string[];
  /** True if the responses of the downstream name its quota. Defaults to false. */
  readonly statesQuota?: boolean;
}

export interface LimiterSetup {
  readonly redisUrl: string;
  /** The start of every key in Redis. */
  readonly prefix: string;
  readonly plan: Plan;
  /** Sends one call to the downstream. The path names the key or the account. */
  readonly send: Send;
}

export type Send = (path: string) => Promise<Response>;

/** A limiter in one replica. */
export interface OpenLimiter {
  /** Waits until a call may start, and sends it. Resolves with the response. */
  call(key: string): Promise<Response>;
  /**
   * True if the limiter itself stops calls after a 429. Otherwise the caller waits for the time in `Retry-After`
   * before it calls again.
   */
  readonly doesCoolDown: boolean;
}

export interface Limiter {
  readonly title: string;
  /** The package in the user's project. Undefined for Sluice. */
  readonly package?: string;
  /**
   * Returns which feature a plan needs that the limiter does not have, such as `"no pool of accounts"`. The report
   * then shows "no such feature". Undefined if the limiter can declare the plan. Defaults to always undefined.
   */
  readonly missingFeature?: (plan: Plan) => string | undefined;
  open(setup: LimiterSetup): Promise<OpenLimiter>;
}

/** Runs a function under one limit. */
export type Limited = <Result>(run: () => Promise<Result>) => Promise<Result>;

/** Only Sluice chooses an account for each call. */
export function lacksPool({ members }: Plan): string | undefined {
  return members === undefined ? undefined : "no pool of accounts";
}

/**
 * Applies a plan with a limiter that knows single limits: a call passes the limit of its key and then the common
 * limit.
 */
export function callerOf(
  { plan, send }: LimiterSetup,
  limit: (name: string, rate: Rate) => Limited,
): OpenLimiter["call"] {
  const limits = new Map<string, Limited>();
  function limitOf(name: string, rate: Rate): Limited {
    const known = limits.get(name) ?? limit(name, rate);
    limits.set(name, known);
    return known;
  }
  return (key) => {
    const sent = (): Promise<Response> => send(key);
    const inAll = (): Promise<Response> => limitOf("all", plan.rate)(sent);
    return plan.perKey === undefined ? inAll() : limitOf(`key-${key}`, plan.perKey)(inAll);
  };
}
