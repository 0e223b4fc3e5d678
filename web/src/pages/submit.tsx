export function Submit({ path }: { path: readonly string[] }) {
  return <div class="page"><h1>Submit {path.join("/")}</h1></div>;
}
