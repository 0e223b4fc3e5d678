import { useState } from "preact/hooks";
import { api, ask } from "../../api/client";
import type { JobDetail } from "../../api/types";
import { bytes } from "../../lib/format";
import { useLoad } from "../../live/load";
import { Icon } from "../../ui/icons";
import { Ago, Card, Empty, Name, Pending } from "../../ui/parts";

/** What the run directory holds, and the outputs that were kept. */
export function Files({ job }: { job: JobDetail }) {
  const [folder, setFolder] = useState("");
  const { data, error, reload } = useLoad(
    `files ${job.id} ${folder} ${job.state}`,
    (signal) => ask(api.GET("/v1/jobs/{ref}/files", { params: { path: { ref: job.id }, query: { path: folder || undefined, limit: 1000 } as never }, signal })),
    [],
  );
  if (!data) return <Pending error={error} what="files" retry={reload} />;
  const parts = folder ? folder.split("/") : [];
  return (
    <Card title={<Crumbs parts={parts} go={setFolder} />} side={<button type="button" class="button small" onClick={reload}>Read again</button>}>
      {data.files.length === 0 ? (
        <Empty title={job.attempt === 0 ? "No files yet: the job has not started" : "No files here"}>
          <p>Name results as <code>outputs</code> in the manifest, and they are kept after the run directory is gone.</p>
        </Empty>
      ) : (
        <div class="table-scroll">
          <table class="grid">
            <thead>
              <tr>
                <th scope="col">Name</th>
                <th scope="col" class="right">Size</th>
                <th scope="col">Changed</th>
                <th scope="col"><span class="hidden-text">Kept</span></th>
                <th scope="col"><span class="hidden-text">Download</span></th>
              </tr>
            </thead>
            <tbody>
              {data.files.map((file) => {
                const name = file.path.split("/").pop() ?? file.path;
                return (
                  <tr>
                    <td class="wide">
                      {file.kind === "directory" ? (
                        <button type="button" class="link" onClick={() => setFolder(file.path)}><Name>{`${name}/`}</Name></button>
                      ) : (
                        <Name>{name}</Name>
                      )}
                    </td>
                    <td class="right nowrap">{file.kind === "file" ? bytes(file.size_bytes) : ""}</td>
                    <td class="nowrap"><Ago at={file.modified_at} /></td>
                    <td>{file.kept && <span class="chip good">kept</span>}</td>
                    <td class="right">
                      {file.kind === "file" && (
                        <a class="icon-button" href={`/v1/jobs/${job.id}/file?path=${encodeURIComponent(file.path)}`} download={name} aria-label={`Download ${name}`}><Icon name="download" /></a>
                      )}
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      {data.next && <p class="muted">Only the first 1,000 are shown: <code>shoal ls {job.id}</code> lists all.</p>}
    </Card>
  );
}

function Crumbs({ parts, go }: { parts: readonly string[]; go: (folder: string) => void }) {
  return (
    <span class="row-gap tight">
      <button type="button" class="link" onClick={() => go("")}>Run directory</button>
      {parts.map((part, place) => (
        <>
          {" / "}
          <button type="button" class="link" onClick={() => go(parts.slice(0, place + 1).join("/"))}><Name>{part}</Name></button>
        </>
      ))}
    </span>
  );
}
