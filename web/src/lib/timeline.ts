/** Where the spans of a timeline stand: lanes, rows in them for spans at the same time, and ticks of the axis. */

export interface SpanGiven {
  readonly lane: string;
  readonly name: string;
  readonly start: number;
  readonly end?: number | null;
  readonly mood?: string;
}

export interface Placed {
  readonly span: SpanGiven;
  /** Parts of the whole width. */
  readonly left: number;
  readonly width: number;
  readonly row: number;
}

export interface Lane {
  readonly name: string;
  readonly rows: number;
  readonly placed: readonly Placed[];
}

export interface Layout {
  readonly from: number;
  readonly to: number;
  readonly lanes: readonly Lane[];
}

export function layOut(spans: readonly SpanGiven[], now: number): Layout {
  if (spans.length === 0) return { from: now, to: now, lanes: [] };
  const from = Math.min(...spans.map((one) => one.start));
  const last = Math.max(...spans.map((one) => one.end ?? now));
  const to = last > from ? last : from + 1;
  const lanes = new Map<string, SpanGiven[]>();
  for (const span of spans) lanes.set(span.lane, [...(lanes.get(span.lane) ?? []), span]);
  return { from, to, lanes: [...lanes].map(([name, members]) => placeLane(name, members, from, to, now)) };
}

function placeLane(name: string, members: SpanGiven[], from: number, to: number, now: number): Lane {
  const ends: number[] = [];
  const placed = [...members]
    .sort((a, b) => a.start - b.start)
    .map((span) => {
      const end = Math.max(span.end ?? now, span.start);
      const free = ends.findIndex((taken) => taken <= span.start + 1e-9);
      const row = free < 0 ? ends.length : free;
      ends[row] = end;
      return { span, row, left: (span.start - from) / (to - from), width: (end - span.start) / (to - from) };
    });
  return { name, rows: Math.max(1, ends.length), placed };
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];

/** Round moments between two others, at most `count`. */
export function ticks(from: number, to: number, count: number, zoneOffsetS = 0): number[] {
  const step = STEPS.find((one) => (to - from) / one <= count) ?? Math.ceil((to - from) / count / 604_800) * 604_800;
  const found: number[] = [];
  for (let at = Math.ceil((from - zoneOffsetS) / step) * step + zoneOffsetS; at <= to; at += step) found.push(at);
  return found.length > 0 ? found : [from];
}
