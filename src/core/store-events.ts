/** What a sluice tells of its Redis servers. */
export interface StoreEvent {
  /** `"down"`: the server is asked no more until it answers a probe; `"up"`: it has answered one. */
  readonly state: "up" | "down";
  /** Where it is, without user and password: `"10.0.0.7:6379"`. */
  readonly server: string;
  /** Of `"down"`, what the connection met last: `"connect ECONNREFUSED 10.0.0.7:6379"`. Undefined for silence, and for `"up"`. */
  readonly reason: string | undefined;
}

/** The events of a sluice, by name. */
export interface SluiceEvents {
  readonly store: StoreEvent;
}
