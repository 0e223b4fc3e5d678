/** Lines of points as the columns that a plot wants, and what a screen reader is told of them. */

export interface LineGiven {
  readonly name: string;
  readonly points: readonly (readonly [number, number | null])[];
}

const MOST = 4000;

/** One x column for all lines, with null where a line has no point. Long lines are thinned to what a screen can show. */
export function columns(lines: readonly LineGiven[]): [number[], ...(number | null)[][]] {
  const thin = lines.map((line) => thinned(line.points));
  const xs = [...new Set(thin.flatMap((points) => points.map(([x]) => x)))].sort((a, b) => a - b);
  const place = new Map(xs.map((x, index) => [x, index]));
  const ys = thin.map((points) => {
    const column = new Array<number | null>(xs.length).fill(null);
    for (const [x, y] of points) column[place.get(x) ?? 0] = y;
    return column;
  });
  return [xs, ...ys];
}

/** The least and the greatest of each stretch, so that no peak is lost. */
export function thinned(points: LineGiven["points"]): LineGiven["points"] {
  if (points.length <= MOST) return points;
  const size = Math.ceil(points.length / (MOST / 2));
  const kept: (readonly [number, number | null])[] = [];
  for (let at = 0; at < points.length; at += size) {
    const part = points.slice(at, at + size).filter((one) => one[1] !== null);
    const [first] = part;
    if (!first) continue;
    let low = first;
    let high = first;
    for (const one of part) {
      if ((one[1] ?? 0) < (low[1] ?? 0)) low = one;
      if ((one[1] ?? 0) > (high[1] ?? 0)) high = one;
    }
    kept.push(...(low === high ? [low] : low[0] < high[0] ? [low, high] : [high, low]));
  }
  return kept;
}

const SMOOTH_FROM = 240;

export const averageOf = (name: string): string => `${name}, average`;

/** A noisy line with its moving average beside it; a short line as it is. */
export function withAverage(line: LineGiven): readonly (LineGiven & { readonly faint?: boolean })[] {
  const { name, points } = line;
  if (points.length < SMOOTH_FROM) return [line];
  const reach = Math.ceil(points.length / 120);
  const sums = [0];
  const counts = [0];
  points.forEach(([, y], place) => {
    sums.push((sums[place] ?? 0) + (y ?? 0));
    counts.push((counts[place] ?? 0) + (y === null ? 0 : 1));
  });
  const average = points.map(([x], place): [number, number | null] => {
    const from = Math.max(0, place - reach);
    const to = Math.min(points.length, place + reach + 1);
    const count = (counts[to] ?? 0) - (counts[from] ?? 0);
    return [x, count > 0 ? ((sums[to] ?? 0) - (sums[from] ?? 0)) / count : null];
  });
  return [{ name, points, faint: true }, { name: averageOf(name), points: average }];
}

export interface Summary {
  readonly name: string;
  readonly last: number;
  readonly least: number;
  readonly most: number;
}

export function summaries(lines: readonly LineGiven[]): Summary[] {
  return lines.flatMap(({ name, points }) => {
    const values = points.map(([, y]) => y).filter((y): y is number => y !== null && Number.isFinite(y));
    const last = values[values.length - 1];
    if (last === undefined) return [];
    return [{ name, last, least: values.reduce((a, b) => Math.min(a, b)), most: values.reduce((a, b) => Math.max(a, b)) }];
  });
}
