/** Settings as they are listed: which are shown, and how a value is written. */

export interface Setting {
  readonly name: string;
  readonly value?: unknown;
  readonly changed?: boolean;
  readonly text?: string;
}

export function settingsLike<T extends Setting>(all: readonly T[], typed: string, changed: boolean): T[] {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter((one) => {
    const text = `${one.name} ${one.text ?? ""}`.toLowerCase();
    return (!changed || one.changed === true) && words.every((word) => text.includes(word));
  });
}

/** As a settings file takes it. */
export function writeSetting(value: unknown): string {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "boolean") return value ? "on" : "off";
  return typeof value === "string" || typeof value === "number" ? String(value) : JSON.stringify(value);
}
