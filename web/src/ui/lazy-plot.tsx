import { lazy, Suspense } from "preact/compat";
import type { PlotGiven } from "./plot";

const Plot = lazy(() => import("./plot"));

export function LazyPlot(given: PlotGiven) {
  return (
    <Suspense fallback={<div class="plot plot-empty" />}>
      <Plot {...given} />
    </Suspense>
  );
}
