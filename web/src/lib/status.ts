/** The server's own description of itself, of which a part depends on its version. */

export interface Capability {
  readonly name: string;
  readonly available: boolean;
  readonly detail: string;
  readonly consequence: string;
}

export function capabilitiesOf(status: Record<string, unknown>): Capability[] {
  const found = status["capabilities"];
  if (!Array.isArray(found)) return [];
  return found.filter((one): one is Capability => typeof one === "object" && one !== null && typeof (one as Capability).name === "string");
}

/** Plain values that no other part of the page shows, in the server's order. */
export function factsOf(status: Record<string, unknown>): [string, number | string | boolean][] {
  const known = new Set(["jobs", "components", "capabilities", "ready", "version", "last_write_failed"]);
  return Object.entries(status).filter(
    (one): one is [string, number | string | boolean] => !known.has(one[0]) && ["number", "string", "boolean"].includes(typeof one[1]),
  );
}
