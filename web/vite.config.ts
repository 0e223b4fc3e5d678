import preact from "@preact/preset-vite";
import { defineConfig, type Plugin } from "vite";

declare const process: { env: Record<string, string | undefined> };

/** `npm run dev` beside a running server: SHOAL_URL and SHOAL_TOKEN name it, and the page is signed in by them. */
function withToken(token: string): Plugin {
  const admin = { signed_in: true, tenant: null, role: "admin", name: "developer", expires_at: null, oidc: false };
  return {
    name: "shoal-session",
    configureServer(server) {
      server.middlewares.use("/v1/web/session", (_request, response) => {
        response.setHeader("content-type", "application/json");
        response.end(JSON.stringify(token ? admin : { signed_in: false, oidc: false }));
      });
    },
  };
}

const url = process.env.SHOAL_URL ?? "http://127.0.0.1:7070";
const token = process.env.SHOAL_TOKEN ?? "";

export default defineConfig({
  base: "/ui/",
  plugins: [preact(), withToken(token)],
  build: {
    outDir: "../src/shoal/web/_site",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
  },
  server: {
    port: 7173,
    proxy: { "/v1": { target: url, headers: token ? { authorization: `Bearer ${token}` } : {} } },
  },
});
