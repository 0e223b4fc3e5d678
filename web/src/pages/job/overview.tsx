import type { JobDetail } from "../../api/types";
import { bytes, cores, plural, sentence } from "../../lib/format";
import { lifeOf, outcomeOf, rankUses, retriesOf } from "../../lib/life";
import { href } from "../../lib/router";
import { ended } from "../../lib/states";
import { readEvents } from "../../live/events";
import { useLoad } from "../../live/load";
import { At, Card, Meter, Name, Prose } from "../../ui/parts";
import { Timeline } from "../../ui/timeline";
import { Metrics } from "./metrics";
import { LogTail } from "./tail";
import { Why } from "./why";

export function Overview({ job }: { job: JobDetail }) {
  const events = useLoad(
    `job events ${job.id}`,
    (signal) => readEvents({ job: job.id }, 500, signal),
    ["jobs"],
  );
  const ran = job.attempt > 0;
  return (
    <div class="stack">
      {job.state === "QUEUED" && <Why job={job} />}
      {job.state === "FAILED" && <Failed job={job} />}
      <Card title="Life line" side={retriesOf(job) && <span>Tried again: {retriesOf(job)}</span>}>
        {events.data && <Timeline spans={lifeOf(events.data, job)} label="Life line of the job" />}
      </Card>
      {ran && <LogTail job={job} />}
      {ran && <Metrics job={job} brief />}
      <div class="cols">
        <Used job={job} />
        <Attempts job={job} />
      </div>
    </div>
  );
}

const FAULTS: Record<string, string> = {
  user: "The job's own fault: Shoal tries it again only if its manifest says so.",
  platform: "Shoal's fault.",
  infrastructure: "The machine's fault.",
};

function Failed({ job }: { job: JobDetail }) {
  return (
    <section class="card failed" aria-label="Why it failed">
      <div class="card-head">
        <h2>Why it failed</h2>
        {job.error_code && <code>{job.error_code}</code>}
      </div>
      <p class="lead"><Prose text={sentence(job.message || "it left no message")} /></p>
      <p class="muted">
        {job.fault && FAULTS[job.fault]} <a href={href("jobs", job.id, "log")}>The whole log</a>
      </p>
    </section>
  );
}

function Used({ job }: { job: JobDetail }) {
  const attempt = job.attempts?.[job.attempts.length - 1];
  const uses = rankUses(attempt);
  const asked = job.resources.memory_bytes ?? 0;
  const devices = Object.entries(job.resources.accelerators ?? {}).filter(([, count]) => count > 0);
  return (
    <Card title={job.ranks > 1 ? `Resources of ${job.ranks} ranks` : "Resources"}>
      <dl class="facts">
        <dt>Accelerators</dt>
        <dd>
          {devices.map(([type, count]) => `${count} of ${type === "any" ? "any type" : type}`).join(", ") || "none"}
          {job.resources.share !== "exclusive" && `, shared (${job.resources.share})`}
        </dd>
        <dt>CPU</dt>
        <dd>{cores(job.resources.cpu_milli ?? 0)} asked</dd>
        <dt>Memory</dt>
        <dd>{bytes(asked)} asked</dd>
      </dl>
      {uses.length > 0 && (
        <div class="table-scroll">
          <table class="grid">
            <thead>
              <tr>
                <th scope="col">Rank</th>
                <th scope="col">Node</th>
                <th scope="col">Devices</th>
                <th scope="col">Most memory</th>
                <th scope="col">End</th>
              </tr>
            </thead>
            <tbody>
              {uses.slice(0, 64).map((use) => (
                <tr>
                  <td>{use.rank}</td>
                  <td>
                    <Name>{use.node}</Name>
                  </td>
                  <td>{use.devices.join(", ") || <span class="none">–</span>}</td>
                  <td>
                    {use.peakBytes === null ? (
                      <span class="none">–</span>
                    ) : (
                      <>
                        {bytes(use.peakBytes)}
                        <Meter used={use.peakBytes} whole={asked} label={`Memory of rank ${use.rank}`} tone={asked > 0 && use.peakBytes > asked * 0.9 ? "warning" : "plain"} />
                      </>
                    )}
                  </td>
                  <td>{use.exit || <span class="none">–</span>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {uses.length > 64 && <p class="muted">And {plural(uses.length - 64, "rank")} more.</p>}
      {uses.length === 0 && <p class="muted">{ended(job.state) ? "It never ran." : "It has not run yet."}</p>}
    </Card>
  );
}

function Attempts({ job }: { job: JobDetail }) {
  const attempts = [...(job.attempts ?? [])].reverse();
  return (
    <Card title="Attempts">
      {attempts.length === 0 ? (
        <p class="muted">None so far.</p>
      ) : (
        <ol class="attempts">
          {attempts.slice(0, 30).map((attempt) => (
            <li>
              <strong>{attempt.number}</strong>
              <span>
                <At at={attempt.created_at} exact />
                {attempt.ended_at != null && (
                  <>
                    {" to "}
                    <At at={attempt.ended_at} exact />
                  </>
                )}
              </span>
              <span class="muted">{outcomeOf(attempt)}{attempt.stop_cause && ` (${attempt.stop_cause})`}</span>
            </li>
          ))}
        </ol>
      )}
    </Card>
  );
}
