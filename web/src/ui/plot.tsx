/** Lines over time or steps, by uPlot. This file and uPlot are loaded when the first plot is shown. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { averageOf, columns, summaries, type LineGiven } from "../lib/series";
import { moment } from "../lib/format";
import { isDark } from "../lib/theme";

export interface PlotGiven {
  readonly title: string;
  readonly lines: readonly (LineGiven & { readonly faint?: boolean })[];
  readonly write: (value: number) => string;
  /** Whether x is a moment in Unix seconds; otherwise a count, such as a training step. */
  readonly time?: boolean;
  readonly xName?: string;
  readonly height?: number;
}

const PLOTS = 6;

/** A single moment would be drawn on an axis of years. */
function spread(xs: ArrayLike<number>, least: number, most: number, time: boolean): [number, number] {
  const room = time ? 30 : 1;
  const only = xs.length === 1 ? xs[0] : undefined;
  return only === undefined ? [least, most] : [only - room, only + room];
}

function clocks(splits: readonly number[]): string[] {
  const exact = splits.length > 1 && (splits[1] ?? 0) - (splits[0] ?? 0) < 60;
  return splits.map((at) => moment(at, Date.now() / 1000, exact));
}

export default function Plot({ title, lines, write, time = true, xName = "time", height = 190 }: PlotGiven) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const names = lines.map((line) => line.name).join("\n");
  const dark = isDark.value;
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string): string => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: `11px ${colour("--sans")}` };
    const solid = lines.filter((line) => !line.faint);
    const inks = lines.map((line) => solid.findIndex((one) => one.name === line.name || one.name === averageOf(line.name)) % PLOTS);
    const made = new uPlot(
      {
        width: element.clientWidth,
        height,
        scales: { x: { time, range: (self, least, most) => spread(self.data[0], least, most, time) } },
        cursor: { points: { size: 7 } },
        legend: { live: true },
        axes: [
          { ...axis, size: 28, space: 76, ...(time ? { values: (_self: uPlot, splits: number[]) => clocks(splits) } : {}) },
          { ...axis, size: 66, values: (_self, splits) => splits.map(write) },
        ],
        series: [
          { label: xName, value: (_self: uPlot, at: number | null) => (at === null ? "–" : time ? moment(at, Date.now() / 1000, true) : String(at)) },
          ...lines.map((line, place) => ({
            label: line.name,
            stroke: colour(`--plot-${(inks[place] ?? 0) + 1}`),
            width: line.faint ? 1 : 1.8,
            alpha: line.faint ? 0.3 : 1,
            spanGaps: true,
            dash: place >= PLOTS ? [5, 4] : [],
            points: { show: line.points.length < 3 },
            value: (_self: uPlot, value: number | null) => (value === null ? "–" : write(value)),
          })),
        ],
      },
      columns(lines) as uPlot.AlignedData,
      element,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [names, dark, time, height]);
  useEffect(() => plot.current?.setData(columns(lines) as uPlot.AlignedData), [lines]);
  const told = summaries(lines).map((one) => `${one.name}: now ${write(one.last)}, between ${write(one.least)} and ${write(one.most)}`);
  return <div class="plot" ref={box} role="img" aria-label={`${title}. ${told.join("; ")}`} />;
}
