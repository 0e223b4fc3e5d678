import { api, ask } from "../../api/client";
import type { Tenant } from "../../api/types";
import { announce } from "../../live/news";
import { askFirst } from "../../ui/dialog";
import { say } from "../../ui/toast";

export function askQuota(tenant: Tenant, done: () => void): void {
  askFirst({
    title: `Accelerators of ${tenant.name}`,
    text: <p>At most so many at once, for all jobs of {tenant.name} together. Running jobs keep what they hold. Empty: no limit. Other limits: <code>shoal quota {tenant.name}</code></p>,
    field: { label: "Accelerators", value: tenant.quota.accelerators == null ? "" : String(tenant.quota.accelerators), kind: "text" },
    act: "Set the limit",
    run: async (value) => {
      const limit = value.trim() === "" ? null : Number(value);
      await ask(api.PATCH("/v1/tenants/{name}", { params: { path: { name: tenant.name } }, body: { quota: { accelerators: limit } } as never }));
      say(`The limit of ${tenant.name} is set`);
      announce("tenants", "jobs");
      done();
    },
  });
}

export function askNewTenant(done: () => void): void {
  askFirst({
    title: "New tenant",
    text: <p>It has weight 1 and no limits until they are set.</p>,
    field: { label: "Name", value: "", kind: "text" },
    act: "Make it",
    run: async (name) => {
      await ask(api.POST("/v1/tenants", { body: { name: name.trim() } as never }));
      say(`${name.trim()} is made`);
      announce("tenants");
      done();
    },
  });
}
