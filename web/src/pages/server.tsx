export function Server({ path }: { path: readonly string[] }) {
  return <div class="page"><h1>Server {path.join("/")}</h1></div>;
}
