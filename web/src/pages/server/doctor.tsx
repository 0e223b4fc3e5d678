/** What the server's machine offers to jobs, as `shoal doctor` says it there. */
import { api, ask } from "../../api/client";
import { useLoad } from "../../live/load";
import { Abilities } from "../../ui/abilities";
import { Card, Command, Pending } from "../../ui/parts";

export function Doctor() {
  const { data, error, reload } = useLoad("doctor", (signal) => ask(api.GET("/v1/doctor", { signal })), []);
  if (!data) return <Card><Pending error={error} what="what the machine can do" retry={reload} /></Card>;
  const all = (data.capabilities ?? []).map((one) => ({ ...one, consequence: one.consequence ?? "" }));
  const missing = all.filter((one) => !one.available);
  return (
    <div class="stack">
      <p class="row-gap">
        <span class={`chip ${data.jobs_can_start ? "good" : "bad"}`}>{data.jobs_can_start ? "jobs can start" : "no job can start"}</span>
        <button type="button" class="button small" onClick={reload}>Look again</button>
        <Command line="shoal doctor" />
      </p>
      {missing.length > 0 && <Abilities title="What is missing" all={missing} />}
      <Abilities title="What works" all={all.filter((one) => one.available)} />
    </div>
  );
}
