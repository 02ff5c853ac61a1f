/** Builds the page: src/ into static/. */
import { copyFile, readFile } from "node:fs/promises";
import { build } from "esbuild";

/** Connect brings a second encoding of every message, a fifteenth of the page, which speaks gRPC-Web in binary alone. */
const withoutJson = {
  name: "without-json",
  setup({ onLoad }) {
    onLoad({ filter: /@bufbuild[/]protobuf[/]dist[/]esm[/](from|to)-json\.js$/ }, async ({ path }) => {
      const names = [...(await readFile(path, "utf8")).matchAll(/^export function (\w+)/gm)].map(([, name]) => name);
      const refuse = (name) => `export const ${name} = () => { throw new Error("The page speaks no JSON."); };`;
      return { contents: names.map(refuse).join("\n") };
    });
  },
};

await build({
  entryPoints: ["src/main.tsx", "src/page.css"],
  entryNames: "page",
  outdir: "static",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  plugins: [withoutJson],
});
await copyFile("src/index.html", "static/index.html");
