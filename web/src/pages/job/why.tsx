/** Why the job waits: what must change, in the order in which a reader can do something about it. */
import { api, ask } from "../../api/client";
import type { JobDetail } from "../../api/types";
import { rankCauses, type RankedCause, type Step } from "../../lib/causes";
import { bytes, fullTime, moment, number, relative, sentence } from "../../lib/format";
import { href } from "../../lib/router";
import { isAdmin, mayChange } from "../../lib/session";
import { useLoad } from "../../live/load";
import { announce, now } from "../../live/news";
import { askFirst } from "../../ui/dialog";
import { Icon } from "../../ui/icons";
import { Card, Command, Pending, Prose } from "../../ui/parts";
import { say } from "../../ui/toast";

export function Why({ job }: { job: JobDetail }) {
  const { data, error, reload } = useLoad(
    `explain ${job.id}`,
    (signal) => ask(api.GET("/v1/jobs/{ref}/explain", { params: { path: { ref: job.id } }, signal })),
    ["jobs"],
    10_000,
  );
  if (!data) return <Card title="Why does it wait?"><Pending error={error} what="the reasons" retry={reload} /></Card>;
  const ranked = rankCauses(data.causes ?? []);
  const blocking = ranked.filter((one) => one.blocking);
  const rest = ranked.filter((one) => !one.blocking);
  const start = data.estimated_start;
  return (
    <Card
      title="Why does it wait?"
      side={data.ahead > 0 && <span>{data.ahead === 1 ? "1 job goes" : `${number(data.ahead)} jobs go`} first</span>}
    >
      <div class="forecast">
        {start != null ? (
          <p>
            Expected to start <strong title={fullTime(start)}>{start > now.value ? relative(start, now.value) : "any moment"}</strong>
            {start > now.value && <span class="muted"> at {moment(start, now.value)}</span>}
          </p>
        ) : blocking.some((one) => one.never) ? (
          <p>
            <strong>It never starts as things are.</strong>
          </p>
        ) : (
          <p>When it starts cannot be said.</p>
        )}
        {start != null && data.start_low != null && (
          <p class="muted small">
            In nine of ten cases {data.start_high != null ? "between" : "not before"} {moment(data.start_low, now.value)}
            {data.start_high != null && <> and {moment(data.start_high, now.value)}</>}
          </p>
        )}
        {data.estimate && <p class="muted small">{data.estimate}</p>}
      </div>
      {blocking.length === 0 && <p>{data.summary.replace(/^waits: /, "")}</p>}
      <ol class="causes">
        {blocking.map((one) => (
          <BlockingCause cause={one} done={reload} />
        ))}
      </ol>
      {rest.length > 0 && (
        <details class="settled">
          <summary>What does not hold it back</summary>
          <ul>
            {rest.map((one) => (
              <li>
                <Icon name="check" /> <span class="muted">{one.title}:</span> <Prose text={one.text} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </Card>
  );
}

function BlockingCause({ cause, done }: { cause: RankedCause; done: () => void }) {
  return (
    <li class={`cause ${cause.never ? "cause-never" : ""}`}>
      <div class="cause-head">
        <h3>{cause.title}</h3>
        {cause.never && <span class="chip bad">never without a change</span>}
      </div>
      <p><Prose text={sentence(cause.text)} /></p>
      {cause.change && (
        <p class="change">
          <span class="muted">It could start if:</span> <Prose text={plain(cause.change)} />
        </p>
      )}
      <div class="row-gap">
        {cause.steps.map((step) => (
          <StepButton step={step} done={done} />
        ))}
        {cause.commands.map((line) => (
          <Command line={line} />
        ))}
      </div>
    </li>
  );
}

/** A change without the command line behind it, which stands below with a button to copy it. */
const plain = (change: string): string => change.replace(/: shoal [^;]*/g, "");

function StepButton({ step, done }: { step: Step; done: () => void }) {
  if (step.kind === "end")
    return (
      <>
        {step.jobs.slice(0, 4).map((id) => (
          <a class="button small" href={href("jobs", id)}>
            Look at {id}
          </a>
        ))}
      </>
    );
  if (step.kind !== "quota" || !isAdmin() || !mayChange()) return null;
  const text = Object.entries(step.limits).map(([name, value]) => `${name.replaceAll("_", " ")} to ${name.endsWith("_bytes") ? bytes(value) : number(value)}`).join(", ");
  const raise = (): void =>
    askFirst({
      title: `Raise the quota of ${step.tenant}?`,
      text: <p>Sets {text}. It holds for all jobs of {step.tenant}, from now on.</p>,
      act: "Raise it",
      run: async () => {
        await ask(api.PATCH("/v1/tenants/{name}", { params: { path: { name: step.tenant } }, body: { quota: step.limits } as never }));
        say(`The quota of ${step.tenant} is raised`);
        announce("tenants", "jobs");
        done();
      },
    });
  return (
    <button type="button" class="button small primary" onClick={raise}>
      Raise {text}
    </button>
  );
}
