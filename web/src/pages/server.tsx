/** How the server is, what this machine offers, and what each component says of itself. Read only. */
import { api, ask } from "../api/client";
import type { Status } from "../api/types";
import { duration, number, sentence, words } from "../lib/format";
import { href } from "../lib/router";
import { capabilitiesOf, factsOf } from "../lib/status";
import { isAdmin } from "../lib/session";
import { useLoad } from "../live/load";
import { Abilities } from "../ui/abilities";
import { Card, Header, Pending } from "../ui/parts";
import { Tabs } from "../ui/tabs";
import { Figures } from "./component";
import { Doctor } from "./server/doctor";
import { Settings } from "./server/settings";

const TABS = [["", "Overview"], ["settings", "Settings"], ["doctor", "Doctor"]] as const;

export function Server({ path }: { path: readonly string[] }) {
  const tab = path[0] ?? "";
  const { data, error, reload } = useLoad("server", (signal) => ask(api.GET("/v1/status", { signal })), ["status"], 5000);
  if (!data)
    return (
      <div class="page">
        <Header title="Server" />
        <Pending error={error} what="the server's state" retry={reload} />
      </div>
    );
  return (
    <div class="page">
      <Header title="Server" sub={<><span>Shoal {data.version}</span><span class={`chip ${data.ready ? "good" : "bad"}`}>{data.ready ? "ready" : "not ready"}</span></>} />
      {isAdmin() && <Tabs base={["server"]} tabs={TABS} at={tab} label="Parts of the server" />}
      {isAdmin() && tab === "settings" ? <Settings /> : isAdmin() && tab === "doctor" ? <Doctor /> : <Overview data={data} />}
    </div>
  );
}

function Overview({ data }: { data: Status }) {
  const status = data as unknown as Record<string, unknown>;
  const able = capabilitiesOf(status);
  const facts = factsOf(status);
  return (
    <div class="stack">
      {data.last_write_failed && <p class="failure">{data.last_write_failed}</p>}
      <dl class="figures">
        {facts.map(([name, value]) => (
          <div class="figure">
            <dt>{words(name.replace(/_s$/, ""))}</dt>
            <dd>{typeof value === "number" ? (name.endsWith("_s") ? duration(value) : number(value)) : typeof value === "boolean" ? (value ? "yes" : "no") : value}</dd>
          </div>
        ))}
      </dl>
      {able.length > 0 && <Abilities title="What it can do here" all={able} />}
      <div class="cols">
        {Object.entries(data.components ?? {}).map(([name, figures]) => figures.length > 0 && (
          <Card title={<a href={href("parts", name)}>{sentence(name)}</a>}>
            <Figures figures={figures} />
          </Card>
        ))}
      </div>
    </div>
  );
}
