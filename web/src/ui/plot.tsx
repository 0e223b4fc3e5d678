/** Lines over time or steps, by uPlot. This file and uPlot are loaded when the first plot is shown. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { columns, summaries, type LineGiven } from "../lib/series";
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
    const inks = lines.map((line) => solid.findIndex((one) => one.name === line.name || line.name.startsWith(`${one.name}, `)) % PLOTS);
    const made = new uPlot(
      {
        width: element.clientWidth,
        height,
        scales: { x: { time } },
        cursor: { points: { size: 7 } },
        legend: { live: true },
        axes: [
          { ...axis, size: 28 },
          { ...axis, size: 66, values: (_self, splits) => splits.map(write) },
        ],
        series: [
          { label: xName },
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
