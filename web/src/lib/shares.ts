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
