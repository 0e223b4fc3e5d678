export function Tenants({ path }: { path: readonly string[] }) {
  return <div class="page"><h1>Tenants {path.join("/")}</h1></div>;
}
