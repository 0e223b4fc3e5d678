/** What each tenant is due of the accelerators by its weight, and what it holds. */

export interface Given {
  readonly name: string;
  readonly weight: number;
  readonly used?: { readonly accelerators?: Record<string, number> };
  readonly jobs?: Record<string, number>;
  readonly running_jobs?: number;
}

export interface Share {
  readonly name: string;
  /** Parts of what all tenants hold together; those that neither run nor wait are due nothing. */
  readonly due: number;
  readonly got: number;
  readonly held: number;
}

export const heldOf = (tenant: Given): number => Object.values(tenant.used?.accelerators ?? {}).reduce((sum, count) => sum + count, 0);

export function sharesOf(tenants: readonly Given[]): Share[] {
  const wants = (one: Given): boolean => heldOf(one) > 0 || (one.running_jobs ?? 0) > 0 || (one.jobs?.["QUEUED"] ?? 0) > 0;
  const weights = tenants.reduce((sum, one) => sum + (wants(one) ? one.weight : 0), 0);
  const all = tenants.reduce((sum, one) => sum + heldOf(one), 0);
  return tenants.map((one) => ({
    name: one.name,
    due: weights > 0 && wants(one) ? one.weight / weights : 0,
    got: all > 0 ? heldOf(one) / all : 0,
    held: heldOf(one),
  }));
}

export interface ShareSample {
  readonly at: number;
  readonly due: number;
  readonly received: number;
}

interface ShareLine {
  readonly name: string;
  readonly points: readonly (readonly [number, number | null])[];
}

export const dueAndReceived = (samples: readonly ShareSample[]): ShareLine[] => [
  { name: "received", points: samples.map((one) => [one.at, one.received] as const) },
  { name: "due by weight", points: samples.map((one) => [one.at, one.due] as const) },
];

export const received = (tenants: Readonly<Record<string, readonly ShareSample[]>>): ShareLine[] =>
  Object.entries(tenants).map(([name, samples]) => ({ name, points: samples.map((one) => [one.at, one.received] as const) }));

/** Over the time in which the tenant was due anything; each sample counts until the next. */
export function means(samples: readonly ShareSample[]): { readonly due: number; readonly received: number } | null {
  let whole = 0;
  let due = 0;
  let got = 0;
  samples.forEach((one, place) => {
    const span = (samples[place + 1]?.at ?? one.at) - one.at;
    if (one.due <= 0) return;
    whole += span;
    due += one.due * span;
    got += one.received * span;
  });
  return whole > 0 ? { due: due / whole, received: got / whole } : null;
}
