/** A key that takes turns: its weight, and its floor in units a second. */
interface Sharer {
  readonly name: string;
  readonly weight: number;
  readonly floor: number;
}

/** What each tenant is due of a rate a second: its floor at least, and the rest by weight. */
export function sharesOf(rate: number, tenants: readonly Sharer[]): ReadonlyMap<string, number> {
  const shares = new Map<string, number>();
  let [open, left] = [tenants, rate];
  for (;;) {
    const weights = open.reduce((sum, { weight }) => sum + weight, 0);
    const raised = open.filter(({ weight, floor }) => floor > (left * weight) / weights);
    if (raised.length === 0) {
      for (const { name, weight } of open) shares.set(name, (left * weight) / weights);
      return shares;
    }
    for (const { name, floor } of raised) {
      shares.set(name, floor);
      left -= floor;
    }
    open = open.filter((tenant) => !raised.includes(tenant));
  }
}
