/** Reported values as lines: one plot for each name, one line for each attempt. */
import type { Metric } from "../api/types";
import type { LineGiven } from "./series";

export interface MetricLines {
  readonly name: string;
  /** Whether x is the step that was reported, and not the time. */
  readonly steps: boolean;
  readonly lines: readonly LineGiven[];
  readonly last: number | null;
}

export function metricLines(metrics: readonly Metric[]): MetricLines[] {
  const names = new Map<string, Metric[]>();
  for (const one of metrics) {
    const known = names.get(one.name);
    if (known) known.push(one);
    else names.set(one.name, [one]);
  }
  return [...names].map(([name, values]) => {
    const steps = values.every((one) => one.step != null);
    const attempts = [...new Set(values.map((one) => one.attempt))].sort((a, b) => a - b);
    const lines = attempts.map((attempt) => ({
      name: attempts.length > 1 ? `attempt ${attempt}` : name,
      points: values
        .filter((one) => one.attempt === attempt)
        .map((one): [number, number | null] => [steps ? (one.step ?? 0) : one.at, one.value])
        .sort((a, b) => a[0] - b[0]),
    }));
    return { name, steps, lines, last: values[values.length - 1]?.value ?? null };
  });
}
