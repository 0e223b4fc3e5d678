export function ComponentPage({ path }: { path: readonly string[] }) {
  return <div class="page"><h1>ComponentPage {path.join("/")}</h1></div>;
}
