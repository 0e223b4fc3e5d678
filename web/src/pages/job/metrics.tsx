import { api, ask } from "../../api/client";
import type { JobDetail } from "../../api/types";
import { number } from "../../lib/format";
import { metricLines } from "../../lib/metrics";
import { withAverage } from "../../lib/series";
import { href } from "../../lib/router";
import { ended } from "../../lib/states";
import { useLoad } from "../../live/load";
import { LazyPlot } from "../../ui/lazy-plot";
import { Card, Empty, Pending } from "../../ui/parts";
import { useMemo } from "preact/hooks";

const LIMIT = 20_000;
const BRIEF = 4;

/** What the job reported, a plot for each name. `brief` shows the first ones, and nothing if there are none. */
export function Metrics({ job, brief = false }: { job: JobDetail; brief?: boolean }) {
  const { data, error, reload } = useLoad(
    `metrics ${job.id} ${job.state}`,
    (signal) => ask(api.GET("/v1/jobs/{ref}/metrics", { params: { path: { ref: job.id }, query: { limit: brief ? 5000 : LIMIT } }, signal })),
    [],
    ended(job.state) ? 0 : 5000,
  );
  const found = useMemo(() => metricLines(data?.metrics ?? []).map((one) => ({ ...one, shown: one.lines.flatMap(withAverage) })), [data]);
  if (brief && found.length === 0) return null;
  if (!data) return <Pending error={error} what="metrics" retry={reload} />;
  if (found.length === 0)
    return (
      <Empty title="The job reported no metrics">
        <p>
          A pattern in the manifest reads them from the log of an unmodified script:
        </p>
        <code>metrics: {"{regex: {loss: 'loss=(?P<value>[\\d.]+)'}}"}</code>
      </Empty>
    );
  const shown = brief ? found.slice(0, BRIEF) : found;
  return (
    <div class="cols">
      {shown.map((one) => (
        <Card title={one.name} side={<span>{one.last === null ? "" : number(one.last)}</span>}>
          <LazyPlot title={one.name} lines={one.shown} write={number} time={!one.steps} xName={one.steps ? "step" : "time"} height={brief ? 150 : 210} />
        </Card>
      ))}
      {brief && found.length > BRIEF && <a href={href("jobs", job.id, "metrics")}>All {found.length} metrics</a>}
    </div>
  );
}
