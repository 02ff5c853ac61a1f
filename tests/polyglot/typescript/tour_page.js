// The program of the page of the documentation, in a browser: what it asks of Node is here.
const output = document.body.appendChild(document.createElement("pre"));
const { address, token, rest } = JSON.parse(decodeURIComponent(location.hash.slice(1)));
const write = (text) => output.append(text);
globalThis.process = { argv: ["", "", address, ...rest], env: { TOKEN: token }, stdout: { write } };
console.log = (...words) => write(`${words.join(" ")}\n`);
import("./tour.mjs").then(
  () => (output.dataset.ended = "well"),
  (error) => (output.dataset.ended = String(error)),
);
