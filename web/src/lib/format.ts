/** How values are written for people: units, plurals, durations, and times in the reader's own zone. */

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function number(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (Number.isInteger(value)) return WHOLE.format(value);
  const size = Math.abs(value);
  if (size >= 1000) return WHOLE.format(value);
  if (size > 0 && size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(size >= 100 ? 4 : 3)));
}

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number): string {
  let left = Math.abs(value);
  let unit = 0;
  while (left >= 1024 && unit < BINARY.length - 1) {
    left /= 1024;
    unit += 1;
  }
  const shown = unit === 0 || left >= 100 ? Math.round(left) : Number(left.toFixed(1));
  return `${value < 0 ? "−" : ""}${shown} ${BINARY[unit]}`;
}

const STEPS: readonly (readonly [string, number])[] = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];

/** The two largest units: "2 h 5 min". Below ten seconds with a fraction, below one in ms or µs. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${number(seconds * 1e6)} µs`;
  if (seconds < 1) return `${number(Number((seconds * 1000).toPrecision(3)))} ms`;
  if (seconds < 10) return `${Number(seconds.toFixed(1))} s`;
  let left = Math.round(seconds);
  const parts: string[] = [];
  for (const [name, size] of STEPS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0 || parts.length > 0) parts.push(count > 0 ? `${count} ${name}` : "");
    if (parts.length === 2) break;
  }
  return parts.filter(Boolean).join(" ");
}

/** How long ago, or in how long: "5 min ago", "in 2 h". One unit, for it is read at a glance. */
export function relative(at: number, now: number): string {
  const seconds = now - at;
  const size = Math.abs(seconds);
  if (size < 5) return "now";
  const [name, unit] = STEPS.find(([, length]) => size >= length) ?? ["s", 1];
  const text = `${Math.floor(size / unit)} ${name}`;
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

export function share(value: number): string {
  const percent = value * 100;
  return `${Number(percent.toFixed(Math.abs(percent) < 10 ? 1 : 0))} %`;
}

export function dollars(value: number): string {
  return new Intl.NumberFormat("en", { style: "currency", currency: "USD" }).format(value);
}

const zoned = (options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat => new Intl.DateTimeFormat(undefined, options);
const CLOCK = zoned({ hour: "2-digit", minute: "2-digit" });
const CLOCK_S = zoned({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = zoned({ day: "numeric", month: "short" });
const FULL = zoned({ dateStyle: "medium", timeStyle: "long" });

/** A moment, as short as may be: the clock today, else with the day. */
export function moment(at: number, now: number, exact = false): string {
  const date = new Date(at * 1000);
  const clock = (exact ? CLOCK_S : CLOCK).format(date);
  const same = new Date(now * 1000).toDateString() === date.toDateString();
  return same ? clock : `${DAY.format(date)} ${clock}`;
}

export function fullTime(at: number): string {
  return FULL.format(new Date(at * 1000));
}

export function cores(milli: number): string {
  return plural(milli / 1000, "core");
}

export interface Amounts {
  readonly accelerators?: Record<string, number>;
  readonly cpu_milli?: number;
  readonly memory_bytes?: number;
}

/** "2 × a100, 8 cores, 64 GiB". */
export function resources(one: Amounts, ranks = 1): string {
  const devices = Object.entries(one.accelerators ?? {}).filter(([, count]) => count > 0);
  const parts = devices.map(([type, count]) => (type === "any" ? plural(count, "accelerator") : `${count} × ${type}`));
  if (one.cpu_milli) parts.push(cores(one.cpu_milli));
  if (one.memory_bytes) parts.push(bytes(one.memory_bytes));
  const whole = parts.join(", ") || "nothing";
  return ranks > 1 ? `${ranks} ranks of ${whole}` : whole;
}

export function accelerators(one: Amounts, ranks = 1): string {
  const devices = Object.entries(one.accelerators ?? {}).filter(([, count]) => count > 0);
  return devices.map(([type, count]) => `${count * ranks} × ${type === "any" ? "any" : type}`).join(", ");
}

/** A text as a sentence begins. */
export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** A name of a program as words: "last_decision" is "Last decision". */
export function words(name: string): string {
  return sentence(name.replaceAll(/[_-]/g, " ").trim());
}

/** A text cut where backquotes mark what is typed: every second part is code. */
export function codeParts(text: string): string[] {
  const parts = text.split("`");
  return parts.length % 2 === 1 ? parts : [text];
}
