/** What tenants were due of the accelerators and what they received, over time. */
import { useMemo } from "preact/hooks";
import { api, ask } from "../../api/client";
import { share } from "../../lib/format";
import { dueAndReceived, means, received } from "../../lib/shares";
import { useLoad } from "../../live/load";
import { LazyPlot } from "../../ui/lazy-plot";
import { Card } from "../../ui/parts";

const EVERY_MS = 10_000;

/** Of one tenant: both lines. Of all: what each received. */
export function SharesOverTime({ tenant }: { tenant?: string }) {
  const query = tenant ? { tenant } : {};
  const { data } = useLoad(`shares ${tenant ?? ""}`, (signal) => ask(api.GET("/v1/web/shares", { params: { query }, signal })), [], EVERY_MS);
  const found = data?.tenants;
  const lines = useMemo(() => (tenant ? dueAndReceived(found?.[tenant] ?? []) : received(found ?? {})), [found, tenant]);
  const mean = tenant && found?.[tenant] ? means(found[tenant]) : null;
  const title = tenant ? "Share due and received over time" : "Share received over time";
  return (
    <Card title={title} side={mean ? <span>{share(mean.received)} received of {share(mean.due)} due, on average</span> : <span>a day at most</span>}>
      {lines.some((line) => line.points.length > 1) ? <LazyPlot title={title} lines={lines} write={share} /> : <p class="muted">Nobody has held or waited for an accelerator in the last day.</p>}
    </Card>
  );
}
