/** Every setting of the server, as it was started. They are changed where the server is started. */
import { useState } from "preact/hooks";
import { api, ask } from "../../api/client";
import { settingsLike, writeSetting } from "../../lib/settings";
import { useLoad } from "../../live/load";
import { Icon } from "../../ui/icons";
import { Card, Command, Empty, Pending, Prose } from "../../ui/parts";

export function Settings() {
  const { data, error, reload } = useLoad("settings", (signal) => ask(api.GET("/v1/settings", { signal })), []);
  const [typed, setTyped] = useState("");
  const [changed, setChanged] = useState(false);
  if (!data) return <Card><Pending error={error} what="settings" retry={reload} /></Card>;
  const shown = settingsLike(data.settings ?? [], typed, changed);
  return (
    <div class="stack">
      <p class="muted">Read from flags, the environment and the settings file when the server starts. An example of a change: <Command line="shoal up --set schedule.round_s=30" /></p>
      <div class="filters">
        <div class="search">
          <Icon name="search" />
          <input type="search" aria-label="Search settings" placeholder="Name or meaning" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </div>
        <label class="row-gap tight"><input type="checkbox" checked={changed} onChange={(event) => setChanged(event.currentTarget.checked)} /> Only those that are not the default</label>
      </div>
      <Card label="Settings">
        {shown.length === 0 ? <Empty title={changed && !typed ? "All settings are the default" : "No setting has this in it"} /> : (
          <div class="table-scroll" tabIndex={0} role="group" aria-label="Settings">
            <table class="grid facing">
              <thead><tr><th scope="col">Setting</th><th scope="col">Value</th><th scope="col">What it means</th></tr></thead>
              <tbody>
                {shown.map((one) => (
                  <tr>
                    <th scope="row"><code>{one.name}</code></th>
                    <td class="wide"><bdi class={one.changed ? "strong" : ""}>{writeSetting(one.value)}</bdi>{one.changed && <span class="chip"> changed</span>}</td>
                    <td class="wide"><Prose text={one.text ?? ""} /></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Card>
    </div>
  );
}
