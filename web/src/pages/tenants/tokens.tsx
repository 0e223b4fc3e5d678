import { useState } from "preact/hooks";
import { api, ask } from "../../api/client";
import { useLoad } from "../../live/load";
import { askFirst } from "../../ui/dialog";
import { Ago, Card, Name, Pending } from "../../ui/parts";
import { Secret } from "../../ui/secret";
import { say } from "../../ui/toast";

type Role = "member" | "viewer";

/** The tokens of a tenant, without their secrets: one that is made is shown once. */
export function Tokens({ tenant }: { tenant: string }) {
  const { data, error, reload } = useLoad(`tokens ${tenant}`, (signal) => ask(api.GET("/v1/tenants/{name}/tokens", { params: { path: { name: tenant } }, signal })), ["tenants"]);
  const [made, setMade] = useState("");
  const make = (role: Role): void =>
    askFirst({
      title: `New token for a ${role} of ${tenant}`,
      text: <p>{role === "viewer" ? "It reads everything of the tenant and changes nothing." : "It submits, changes and ends jobs of the tenant."} It is shown once.</p>,
      field: { label: "Label (whose it is)", value: "" },
      act: "Make it",
      run: async (label) => {
        setMade((await ask(api.POST("/v1/tenants/{name}/tokens", { params: { path: { name: tenant } }, body: { label, role } }))).token);
        reload();
      },
    });
  const revoke = (id: string, label: string): void =>
    askFirst({
      title: `Revoke ${label || id}?`,
      text: <p>Whoever uses it is refused from now on, and signed out of this page.</p>,
      act: "Revoke it",
      destructive: true,
      run: async () => {
        await ask(api.DELETE("/v1/tokens/{token_id}", { params: { path: { token_id: id } } }));
        say("The token is revoked");
        reload();
      },
    });
  return (
    <Card
      title="Tokens"
      side={
        <>
          <button type="button" class="button small" onClick={() => make("member")}>New member</button>
          <button type="button" class="button small" onClick={() => make("viewer")}>New viewer</button>
        </>
      }
    >
      {made && <Secret text={made} what="The token" done={() => setMade("")} />}
      {!data ? (
        <Pending error={error} what="tokens" retry={reload} />
      ) : data.tokens.length === 0 ? (
        <p class="muted">None.</p>
      ) : (
        <div class="table-scroll">
          <table class="grid">
            <thead><tr><th scope="col">Label</th><th scope="col">Role</th><th scope="col">Made</th><th scope="col">State</th></tr></thead>
            <tbody>
              {data.tokens.map((one) => (
                <tr>
                  <th scope="row"><Name>{one.label || one.id}</Name></th>
                  <td>{one.read_only ? "viewer" : "member"}</td>
                  <td><Ago at={one.created_at} /></td>
                  <td>{one.revoked_at != null ? <>revoked <Ago at={one.revoked_at} /></> : <button type="button" class="button small" aria-label={`Revoke ${one.label || one.id}`} onClick={() => revoke(one.id, one.label ?? "")}>Revoke</button>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}
