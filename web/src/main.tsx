import { render } from "preact";
import "./style/base.css";
import "./style/shell.css";
import "./style/jobs.css";
import "./style/detail.css";
import "./style/places.css";
import "./lib/theme";
import { App } from "./app";
import { listen } from "./lib/router";

listen();
const root = document.getElementById("app");
if (root) render(<App />, root);
