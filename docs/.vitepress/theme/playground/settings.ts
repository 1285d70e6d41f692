/** What a visitor of the playground chooses. All of it is part of the link to share. */
export interface Settings {
  readonly rate: number;
  readonly burst: number;
  readonly perTenant: number;
  readonly concurrency: number;
  readonly replicas: number;
  readonly tenants: number;
  readonly loud: number;
  readonly traffic: number;
  readonly together: number;
  readonly api: number;
  readonly dip: number;
  readonly seed: number;
}

export interface Field {
  readonly label: string;
  readonly least: number;
  readonly most: number;
  readonly initial: number;
  readonly step?: number;
  /** What the value means, as text beside the control. */
  readonly show: (value: number) => string;
}

const plain = String;
const perSecond = (value: number): string => `${value}/s`;
const orNone = (show: (value: number) => string) => (value: number) =>
  value === 0 ? "none" : show(value);

/** The settings by their names in the link. */
export const FIELDS: Readonly<Record<keyof Settings, Field>> = {
  rate: { label: "Rate", least: 5, most: 100, step: 5, initial: 50, show: perSecond },
  burst: { label: "Calls that may start at once", least: 1, most: 50, initial: 1, show: plain },
  perTenant: {
    label: "Rate of each tenant",
    least: 0,
    most: 100,
    step: 5,
    initial: 0,
    show: orNone(perSecond),
  },
  concurrency: {
    label: "Running calls",
    least: 0,
    most: 20,
    initial: 0,
    show: orNone((value) => `at most ${value}`),
  },
  replicas: { label: "Processes", least: 1, most: 16, initial: 4, show: plain },
  tenants: { label: "Tenants", least: 1, most: 4, initial: 1, show: plain },
  loud: {
    label: "Calls of the first tenant",
    least: 25,
    most: 95,
    step: 5,
    initial: 70,
    show: (value) => `${value} %`,
  },
  traffic: {
    label: "Calls that arrive",
    least: 5,
    most: 200,
    step: 5,
    initial: 60,
    show: perSecond,
  },
  together: {
    label: "Calls that arrive together",
    least: 1,
    most: 100,
    initial: 1,
    show: (value) => (value === 1 ? "each by itself" : `${value} at once`),
  },
  api: {
    label: "The API accepts",
    least: 0,
    most: 200,
    step: 5,
    initial: 60,
    show: (value) => (value === 0 ? "all calls" : `${value} in a second`),
  },
  dip: {
    label: "Half of that from second 4 to 7",
    least: 0,
    most: 1,
    initial: 0,
    show: plain,
  },
  seed: { label: "Random draw", least: 1, most: 99, initial: 1, show: (value) => `no. ${value}` },
};

const NAMES = Object.keys(FIELDS) as (keyof Settings)[];

export const DEFAULTS: Settings = mapFields(({ initial }) => initial);

/** Settings that show one thing each. */
export const EXAMPLES: readonly { readonly name: string; readonly settings: Settings }[] = [
  { name: "Four processes, one limit", settings: DEFAULTS },
  { name: "Bursts", settings: { ...DEFAULTS, traffic: 40, together: 50 } },
  { name: "A loud tenant", settings: { ...DEFAULTS, tenants: 4, loud: 85, traffic: 90 } },
  { name: "The API halves its quota", settings: { ...DEFAULTS, dip: 1, traffic: 50 } },
  { name: "Limits per tenant", settings: { ...DEFAULTS, tenants: 3, perTenant: 20, traffic: 80 } },
];

/** Reads the part of a link after `#`. Names and values that are unknown or out of range have no effect. */
export function readLink(hash: string): Settings {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  return mapFields(({ initial, least, most }, name) => {
    const value = Number(given.get(name) ?? Number.NaN);
    return Number.isInteger(value) && value >= least && value <= most ? value : initial;
  });
}

/** Whether a link has settings, not the name of a heading. */
export function hasSettings(hash: string): boolean {
  return hash === "" || hash.includes("=");
}

/** Writes what differs from the defaults: `"#rate=20&replicas=8"`, or an empty text. */
export function writeLink(settings: Settings): string {
  const changed = NAMES.filter((name) => settings[name] !== FIELDS[name].initial);
  const text = new URLSearchParams(
    changed.map((name): [string, string] => [name, String(settings[name])]),
  );
  return changed.length === 0 ? "" : `#${text.toString()}`;
}

function mapFields(valueOf: (field: Field, name: keyof Settings) => number): Settings {
  return Object.fromEntries(
    NAMES.map((name) => [name, valueOf(FIELDS[name], name)]),
  ) as unknown as Settings;
}
