/** How the server is, what this machine offers, and what each component says of itself. Read only. */
import { api, ask } from "../api/client";
import { duration, number, sentence, words } from "../lib/format";
import { href } from "../lib/router";
import { capabilitiesOf, factsOf } from "../lib/status";
import { useLoad } from "../live/load";
import { Card, Header, Pending, Prose } from "../ui/parts";
import { Figures } from "./component";

export function Server(_: { path: readonly string[] }) {
  const { data, error, reload } = useLoad("server", (signal) => ask(api.GET("/v1/status", { signal })), ["status"], 5000);
  if (!data)
    return (
      <div class="page">
        <Header title="Server" />
        <Pending error={error} what="the server's state" retry={reload} />
      </div>
    );
  const status = data as unknown as Record<string, unknown>;
  const able = capabilitiesOf(status);
  const facts = factsOf(status);
  return (
    <div class="page">
      <Header title="Server" sub={<><span>Shoal {data.version}</span><span class={`chip ${data.ready ? "good" : "bad"}`}>{data.ready ? "ready" : "not ready"}</span></>} />
      {data.last_write_failed && <p class="failure">{data.last_write_failed}</p>}
      <dl class="figures">
        {facts.map(([name, value]) => (
          <div class="figure">
            <dt>{words(name.replace(/_s$/, ""))}</dt>
            <dd>{typeof value === "number" ? (name.endsWith("_s") ? duration(value) : number(value)) : typeof value === "boolean" ? (value ? "yes" : "no") : value}</dd>
          </div>
        ))}
      </dl>
      {able.length > 0 && (
        <Card title="What it can do here">
          <div class="table-scroll" tabIndex={0} role="group" aria-label="What it can do here">
            <table class="grid">
              <thead><tr><th scope="col">What</th><th scope="col">Here</th><th scope="col">How, or why not</th></tr></thead>
              <tbody>
                {able.map((one) => (
                  <tr>
                    <th scope="row">{words(one.name)}</th>
                    <td><span class={`chip ${one.available ? "good" : ""}`}>{one.available ? "yes" : "no"}</span></td>
                    <td class="wide"><Prose text={sentence(one.detail)} />{!one.available && one.consequence && <p class="muted"><Prose text={sentence(one.consequence)} /></p>}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      )}
      <div class="cols">
        {Object.entries(data.components ?? {}).map(([name, figures]) => figures.length > 0 && (
          <Card title={<a href={href("parts", name)}>{sentence(name)}</a>}>
            <Figures figures={figures} />
          </Card>
        ))}
      </div>
      <Card title="Settings">
        <p class="muted">They are read from flags, the environment and the settings file when the server starts. <code>shoal settings</code> shows them all, and <code>shoal doctor</code> checks the machine.</p>
      </Card>
    </div>
  );
}
