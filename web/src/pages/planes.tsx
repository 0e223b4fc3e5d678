/** Virtual control planes: one for a team, on the shared machines. */
import { useState } from "preact/hooks";
import { api, ask } from "../api/client";
import type { Plane } from "../api/types";
import { number, plural } from "../lib/format";
import { useLoad } from "../live/load";
import { announce } from "../live/news";
import { askFirst } from "../ui/dialog";
import { Ago, Card, Command, Empty, Header, Name, Pending, State } from "../ui/parts";
import { Secret } from "../ui/secret";
import { say } from "../ui/toast";
import { Actions } from "./component";

interface Made {
  readonly name: string;
  readonly url: string;
  readonly token: string;
}

export function Planes(_: { path: readonly string[] }) {
  const { data, error, reload } = useLoad("planes", (signal) => ask(api.GET("/v1/planes", { signal })), ["status"]);
  const page = useLoad("page tenancy", async (signal) => (await ask(api.GET("/v1/pages", { signal }))).pages?.["tenancy"] ?? null, ["status", "pages"]);
  const tenants = useLoad("tenant-names", () => ask(api.GET("/v1/tenants")), ["tenants"]);
  const [made, setMade] = useState<Made | null>(null);
  const refresh = (): void => {
    reload();
    page.reload();
  };
  return (
    <div class="page">
      <Header title="Planes" sub="Control planes of their own for teams, on the shared machines.">
        <button type="button" class="button" disabled={!tenants.data} onClick={() => make(tenants.data?.tenants.map((one) => one.name) ?? [], setMade, refresh)}>New plane</button>
      </Header>
      {made && (
        <Card label="The new plane">
          <Secret text={made.token} what={`The token of the first admin of ${made.name}`} done={() => setMade(null)} />
          <Command line={`export SHOAL_URL=${made.url}`} />
        </Card>
      )}
      {!data ? (
        <Pending error={error} what="planes" retry={reload} />
      ) : data.planes.length === 0 ? (
        <Card>
          <Empty title="No planes">
            <p>A plane gives a team tenants, quotas and tokens of its own. From a terminal: <code>shoal plane create NAME --tenant TENANT</code></p>
          </Empty>
        </Card>
      ) : (
        <Card label="Planes">
          <div class="table-scroll" tabIndex={0} role="group" aria-label="Planes">
            <table class="grid">
              <thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col">Tenant</th><th scope="col" class="right">Running</th><th scope="col" class="right">Waiting</th><th scope="col">Awake</th><th scope="col">Made</th><th scope="col"><span class="hidden-text">What can be done</span></th></tr></thead>
              <tbody>
                {data.planes.map((one) => (
                  <tr>
                    <th scope="row"><Name>{one.name}</Name></th>
                    <td><State state={one.state} /></td>
                    <td><Name>{one.tenant}</Name></td>
                    <td class="right">{number(one.running)}</td>
                    <td class="right">{number(one.waiting)}</td>
                    <td>{one.awake ? "yes" : "asleep"}</td>
                    <td><Ago at={one.created_at} /></td>
                    <td><button type="button" class="button small" aria-label={`Delete ${one.name}`} onClick={() => remove(one, refresh)}>Delete</button></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      )}
      {page.data && <Actions actions={page.data.actions ?? []} done={refresh} />}
    </div>
  );
}

function make(tenants: readonly string[], show: (made: Made) => void, done: () => void): void {
  askFirst({
    title: "New plane",
    text: <p>A plane has tenants, quotas, tokens and names of its own. Its work counts against the quota and the share of one tenant here.</p>,
    field: { label: "Name (lower-case letters, digits and dashes)", value: "" },
    second: { label: "Tenant", value: tenants[0] ?? "", options: tenants },
    act: "Make it",
    run: async (name, tenant) => {
      const found = await ask(api.POST("/v1/planes", { body: { name: name.trim(), tenant } }));
      show(found);
      announce("status", "pages");
      done();
    },
  });
}

function remove(plane: Plane, done: () => void): void {
  const all = plane.running + plane.waiting;
  askFirst({
    title: `Delete ${plane.name}?`,
    text: (
      <p>
        Its tenants, tokens, jobs and history are removed for good.{" "}
        {all > 0 ? `${plural(all, "job")} that it has in the shared pool ${all === 1 ? "is" : "are"} ended.` : "It has nothing in the shared pool now."}
      </p>
    ),
    act: "Delete it",
    destructive: true,
    run: async () => {
      await ask(api.DELETE("/v1/planes/{name}", { params: { path: { name: plane.name }, query: { force: all > 0 } } }));
      say(`${plane.name} is deleted`);
      announce("status", "pages");
      done();
    },
  });
}
