/** How a component's page is drawn: its values as texts, by the unit that came with them. */
import type { Action, Figure, PageSeries, PageSpan, Unit } from "../api/types";
import { bytes, dollars, duration, moment, number, share } from "./format";
import type { SpanGiven } from "./timeline";

export type Value = boolean | number | string | null | undefined;

export function write(value: Value, unit: Unit | undefined, now: number): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return value;
  switch (unit) {
    case "bytes": return bytes(value);
    case "dollars": return dollars(value);
    case "seconds": return duration(value);
    case "share": return share(value);
    case "time": return moment(value, now);
    default: return number(value);
  }
}

/** A column is set to the right if its values are numbers that are compared. */
export function isNumeric(rows: readonly (readonly Value[])[], column: number): boolean {
  const values = rows.map((row) => row[column]).filter((value) => value !== null && value !== undefined);
  return values.length > 0 && values.every((value) => typeof value === "number");
}

export type Direction = "up" | "down";

/** Rows in the order of a column; absent values come last, whatever the direction. */
export function sortRows<T extends readonly Value[]>(rows: readonly T[], column: number, direction: Direction): T[] {
  const sign = direction === "up" ? 1 : -1;
  return [...rows].sort((a, b) => {
    const [left, right] = [a[column], b[column]];
    const absent = Number(left == null) - Number(right == null);
    if (absent !== 0) return absent;
    if (typeof left === "number" && typeof right === "number") return sign * (left - right);
    return sign * String(left).localeCompare(String(right), "en", { numeric: true });
  });
}

export const isLong = (figure: Figure): boolean => typeof figure.value === "string" && figure.value.length > 22;

export const hasPoints = (series: PageSeries): boolean => series.lines.some((line) => line.points.length > 0);

const MOODS: Record<string, string> = { good: "good", warning: "warning", bad: "bad" };

export function spansOf(spans: readonly PageSpan[]): SpanGiven[] {
  return spans.map((one) => ({ lane: one.lane, name: one.name, start: one.start, end: one.end ?? null, mood: MOODS[one.mood ?? ""] ?? "active" }));
}

/** A command line for a shell: words that a shell would change are quoted. */
export function commandLine(words: readonly string[]): string {
  return words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

/** Whether a request of an action goes to the server's own API; no other address is ever asked. */
export const isOwn = (action: Pick<Action, "path">): boolean => /^\/v1\/[\w\-./~%?=&,:@]*$/.test(action.path) && !action.path.includes("/../");
