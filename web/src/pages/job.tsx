/** One job: how it is and why, its log, what it reported, its files, its history, and what it was asked to do. */
import { api, ask } from "../api/client";
import type { JobDetail } from "../api/types";
import { duration, resources } from "../lib/format";
import { href } from "../lib/router";
import { ranS, waitedS } from "../lib/rows";
import { mayChange } from "../lib/session";
import { canCancel, canResume, canSuspend } from "../lib/states";
import { useLoad } from "../live/load";
import { now } from "../live/news";
import { Ago, Copy, Header, Name, Pending, State } from "../ui/parts";
import { Tabs } from "../ui/tabs";
import { EventList } from "./events";
import { Artifacts } from "./job/artifacts";
import { Files } from "./job/files";
import { Log } from "./job/log";
import { Manifest } from "./job/manifest";
import { Metrics } from "./job/metrics";
import { Overview } from "./job/overview";
import { askStep, type Step } from "./jobs/steps";

const TABS = [
  ["", "Overview"], ["log", "Log"], ["metrics", "Metrics"], ["files", "Files"], ["events", "Events"], ["manifest", "Manifest"],
] as const;

export function JobPage({ path }: { path: readonly string[] }) {
  const ref = path[0] ?? "";
  const tab = path[1] ?? "";
  const loaded = useLoad(`job ${ref}`, (signal) => ask(api.GET("/v1/jobs/{ref}", { params: { path: { ref } }, signal })), ["jobs"]);
  const job = loaded.data;
  if (!job)
    return (
      <div class="page">
        <h1 class="hidden-text">Job {ref}</h1>
        <Pending error={loaded.error} what="the job" retry={loaded.reload} />
      </div>
    );
  return (
    <div class={`page ${tab === "log" ? "fill" : ""}`}>
      <JobHeader job={job} done={loaded.reload} />
      <Tabs base={["jobs", job.id]} tabs={TABS} at={tab} label="Parts of the job" />
      {tab === "" && <Overview job={job} />}
      {tab === "log" && <Log job={job} />}
      {tab === "metrics" && <Metrics job={job} />}
      {tab === "files" && (
        <>
          <Artifacts job={job} />
          <Files job={job} />
        </>
      )}
      {tab === "events" && (
        <section class="card" aria-label="Events">
          <EventList of={{ job: job.id }} />
        </section>
      )}
      {tab === "manifest" && <Manifest job={job} />}
    </div>
  );
}

function JobHeader({ job, done }: { job: JobDetail; done: () => void }) {
  const ran = ranS(job, now.value);
  const waited = waitedS(job, now.value);
  const steps: readonly (readonly [Step, boolean])[] = [
    ["resume", canResume(job.state)], ["suspend", canSuspend(job.state)], ["cancel", canCancel(job.state)],
  ];
  return (
    <Header
      title={<Name>{job.name}</Name>}
      sub={
        <>
          <State state={job.state} />
          <span class="row-gap tight">
            <code>{job.id}</code>
            <Copy text={job.id} label="Copy the job's id" />
          </span>
          <span>
            Tenant <Name>{job.tenant}</Name>
          </span>
          <span>{job.priority_class}</span>
          <span>{resources(job.resources, job.ranks)}</span>
          <span>
            Submitted <Ago at={job.submitted_at} />
          </span>
          {waited >= 1 && <span>Waited {duration(Math.round(waited))}</span>}
          {ran !== null && <span>Ran {duration(ran >= 10 ? Math.floor(ran) : ran)}</span>}
        </>
      }
    >
      {mayChange() && (
        <>
          <a class="button" href={`${href("submit")}?from=${job.id}`}>
            Run again
          </a>
          {steps.map(
            ([step, can]) =>
              can && (
                <button type="button" class="button" onClick={() => askStep(step, [{ id: job.id, job }], done)}>
                  {step.charAt(0).toUpperCase() + step.slice(1)}
                </button>
              ),
          )}
        </>
      )}
    </Header>
  );
}
