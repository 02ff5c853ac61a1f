import { connect } from "@turnwright/client";
import { createRoot } from "react-dom/client";
import { App } from "./hook";

const { token, project, run } = JSON.parse(decodeURIComponent(location.hash.slice(1)));
const root = createRoot(document.body.appendChild(document.createElement("main")));
root.render(<App client={connect(location.origin, token)} project={project} run={run} />);
document.body.appendChild(document.createElement("button")).addEventListener("click", () => root.unmount());
