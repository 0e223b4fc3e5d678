export function JobPage({ path }: { path: readonly string[] }) {
  return <div class="page"><h1>JobPage {path.join("/")}</h1></div>;
}
