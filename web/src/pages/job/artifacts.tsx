import { api, ask } from "../../api/client";
import type { Artifact, JobDetail } from "../../api/types";
import { bytes } from "../../lib/format";
import { mayChange } from "../../lib/session";
import { useLoad } from "../../live/load";
import { askFirst } from "../../ui/dialog";
import { Icon } from "../../ui/icons";
import { Ago, Card, Name } from "../../ui/parts";
import { say } from "../../ui/toast";

/** The artifacts that were kept of the job. Nothing where it has none, or where the server keeps none. */
export function Artifacts({ job }: { job: JobDetail }) {
  const { data, reload } = useLoad(
    `artifacts ${job.id} ${job.state}`,
    (signal) => ask(api.GET("/v1/artifacts", { params: { query: { job: job.id } }, signal })),
    ["jobs"],
  );
  if (!data || data.artifacts.length === 0) return null;
  return (
    <Card title="Artifacts">
      <div class="table-scroll" tabIndex={0} role="group" aria-label="Artifacts">
        <table class="grid">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col" class="right">Attempt</th>
              <th scope="col" class="right">Size</th>
              <th scope="col">Taken</th>
              <th scope="col"><span class="hidden-text">Pinned</span></th>
              <th scope="col"><span class="hidden-text">What can be done</span></th>
            </tr>
          </thead>
          <tbody>
            {data.artifacts.map((one) => (
              <tr>
                <th scope="row" class="wide"><Name>{one.name}</Name></th>
                <td class="right">{one.attempt}</td>
                <td class="right nowrap">{bytes(one.bytes)}</td>
                <td class="nowrap"><Ago at={one.taken_at} /></td>
                <td>{one.pinned && <span class="chip good">pinned</span>}</td>
                <td class="right nowrap">
                  {mayChange() && (
                    <>
                      <button type="button" class="button small" aria-label={`${one.pinned ? "Unpin" : "Pin"} ${one.name}`} onClick={() => void pin(one, reload)}>{one.pinned ? "Unpin" : "Pin"}</button>{" "}
                      {!one.pinned && <button type="button" class="button small" aria-label={`Remove ${one.name}`} onClick={() => remove(one, reload)}>Remove</button>}
                    </>
                  )}
                  <a class="icon-button" href={`/v1/artifacts/${one.id}/content`} download={one.name.split("/").pop()} aria-label={`Download the artifact ${one.name}`}><Icon name="download" /></a>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {data.next && <p class="muted">Only the first 1,000 are shown: <code>shoal artifacts {job.id}</code> lists all.</p>}
    </Card>
  );
}

async function pin(one: Artifact, done: () => void): Promise<void> {
  try {
    await ask(api.POST("/v1/artifacts/{artifact}/pin", { params: { path: { artifact: one.id } }, body: { pinned: !one.pinned } }));
  } catch (reason) {
    say(reason instanceof Error ? reason.message : String(reason), "bad");
  }
  done();
}

function remove(one: Artifact, done: () => void): void {
  askFirst({
    title: `Remove ${one.name}?`,
    text: <p>The artifact is removed for good. A service that was deployed from it keeps its own copy.</p>,
    act: "Remove it",
    destructive: true,
    run: async () => {
      await ask(api.DELETE("/v1/artifacts/{artifact}", { params: { path: { artifact: one.id } } }));
      say(`${one.name} is removed`);
      done();
    },
  });
}
