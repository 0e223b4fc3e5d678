/** Stored manifests as a person would write them. */
import { bytes } from "./format";
import type { Plain } from "./yaml";

type Fields = Record<string, unknown>;

/** Without what is empty or has its default, and with sizes as they are written. */
export function trimmed(manifest: Fields): { [name: string]: Plain } {
  const found = strip(manifest) as { [name: string]: Plain };
  delete found["kind"];
  const drop: Fields = { ranks: 1, network: true, priority: 0, placement: "pack", grace: 10, priority_class: "best-effort" };
  for (const [name, value] of Object.entries(drop)) if (found[name] === value) delete found[name];
  const wanted = found["resources"] as { [name: string]: Plain } | undefined;
  if (wanted) found["resources"] = tidy(wanted);
  const restart = JSON.stringify(found["restart"]);
  if (restart === JSON.stringify({ on: "failure", limits: { user: 0, platform: 3, infrastructure: 5 }, backoff: 1 })) delete found["restart"];
  return found;
}

function tidy(resources: { [name: string]: Plain }): { [name: string]: Plain } {
  const { accelerators, memory, ...rest } = resources;
  const out: { [name: string]: Plain } = {};
  if (accelerators !== null && typeof accelerators === "object" && !Array.isArray(accelerators)) {
    const { type, count, share, ...more } = accelerators as { [name: string]: Plain };
    if (typeof count === "number" && count > 0) {
      const short = share === "exclusive" && Object.keys(more).length === 0;
      out["accelerators"] = short ? (type === "any" ? count : `${String(type)}:${count}`) : (accelerators as Plain);
    }
  }
  Object.assign(out, rest);
  if (memory !== undefined) out["memory"] = typeof memory === "number" ? exact(memory) : memory;
  return out;
}

/** A size with a unit only if that is the same number. */
function exact(size: number): Plain {
  for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]] as const)
    if (size >= unit && size % unit === 0) return bytes(size).endsWith(name) ? `${size / unit}${name}` : size;
  return size;
}

function strip(value: unknown): Plain | undefined {
  if (value === null || value === undefined || value === "") return undefined;
  if (Array.isArray(value)) {
    const kept = value.map((one) => (one === "" ? "" : (strip(one) ?? null)));
    return kept.length > 0 ? kept : undefined;
  }
  if (typeof value === "object") {
    const entries = Object.entries(value as Fields).flatMap(([name, one]) => {
      const kept = strip(one);
      return kept === undefined ? [] : [[name, kept] as const];
    });
    return entries.length > 0 ? Object.fromEntries(entries) : undefined;
  }
  return value as Plain;
}
