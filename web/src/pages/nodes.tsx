export function Nodes({ path }: { path: readonly string[] }) {
  return <div class="page"><h1>Nodes {path.join("/")}</h1></div>;
}
