/** Virtual control planes: one for a team, on the shared machines. */
import { api, ask } from "../api/client";
import { number } from "../lib/format";
import { useLoad } from "../live/load";
import { Actions } from "./component";
import { Ago, Card, Empty, Header, Name, Pending, State } from "../ui/parts";

export function Planes(_: { path: readonly string[] }) {
  const { data, error, reload } = useLoad("planes", (signal) => ask(api.GET("/v1/planes", { signal })), ["status"]);
  const page = useLoad("page tenancy", async (signal) => (await ask(api.GET("/v1/pages", { signal }))).pages?.["tenancy"] ?? null, ["status", "pages"]);
  const refresh = (): void => {
    reload();
    page.reload();
  };
  return (
    <div class="page">
      <Header title="Planes" sub="Control planes of their own for teams, on the shared machines." />
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
              <thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col">Tenant</th><th scope="col" class="right">Running</th><th scope="col" class="right">Waiting</th><th scope="col">Awake</th><th scope="col">Made</th></tr></thead>
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
