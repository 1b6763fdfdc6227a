// Bundles src/ into the folder that it is given: `node build.mjs FOLDER [--watch]`.
//
// The folder then holds index.html, app-HASH.js, app-HASH.css, icon-HASH.svg and licenses.txt, and nothing else. A name
// with a hash can be cached for ever; index.html names the others, and keeps `{root}` for the server to fill in.

import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import esbuild from "esbuild";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PACKAGE = /^node_modules\/(?:@[^/]+\/)?[^/]+/;
const LICENSE = /^(licen[cs]e|copying)(\.|$)/i;

/** The one output whose name matches; a second script or style would be one that no page asks for. */
function only(names, form) {
  const found = names.filter((name) => form.test(name));
  if (found.length !== 1)
    throw new Error(`expected one file like ${form}, and there are: ${found.join(", ") || "none"}`);
  return found[0];
}

/** What the page says: the names in place of their placeholders, each of which must be there. */
function page(template, names) {
  const parts = { icon: only(names, /^icon-.*\.svg$/), script: only(names, /\.js$/), style: only(names, /\.css$/) };
  if (!template.includes("{root}")) throw new Error("src/index.html does not mention {root}");
  return Object.entries(parts).reduce((text, [part, name]) => {
    if (!text.includes(`{${part}}`)) throw new Error(`src/index.html does not mention {${part}}`);
    return text.replaceAll(`{${part}}`, name);
  }, template);
}

/** The licences of whatever others wrote that ended up in an output. They ask to go along with it. */
function licenses(outputs) {
  const inputs = Object.values(outputs).flatMap((output) => Object.keys(output.inputs));
  const packages = new Set(inputs.map((input) => PACKAGE.exec(input)?.[0]).filter(Boolean));
  return [...packages]
    .sort()
    .map(license)
    .join(`\n${"-".repeat(80)}\n\n`);
}

function license(folder) {
  const { name, version, license: kind } = JSON.parse(readFileSync(join(HERE, folder, "package.json"), "utf8"));
  const files = readdirSync(join(HERE, folder)).filter((file) => LICENSE.test(file));
  if (files.length === 0) throw new Error(`${name} is in the bundle and has no licence in ${folder}`);
  const texts = files.sort().map((file) => readFileSync(join(HERE, folder, file), "utf8").trim());
  return `${name} ${version} (${kind})\n\n${texts.join("\n\n")}\n`;
}

/** Brings the folder up to date so that a server may read it at any moment: parts first, then the page, then old parts go. */
function replace(folder, files) {
  mkdirSync(folder, { recursive: true });
  for (const [name, contents] of Object.entries(files)) {
    writeFileSync(join(folder, `.${name}`), contents);
    renameSync(join(folder, `.${name}`), join(folder, name));
  }
  for (const name of readdirSync(folder)) {
    if (!Object.hasOwn(files, name)) rmSync(join(folder, name), { recursive: true });
  }
}

function writer(folder) {
  return {
    name: "writer",
    setup(build) {
      build.onEnd(({ errors, metafile, outputFiles }) => {
        if (errors.length > 0) return;
        const made = Object.fromEntries(outputFiles.map((file) => [basename(file.path), file.contents]));
        const template = only(Object.keys(made), /\.html$/);
        const { [template]: source, ...parts } = made;
        const html = page(new TextDecoder().decode(source), Object.keys(parts));
        replace(folder, { ...parts, "licenses.txt": licenses(metafile.outputs), "index.html": html });
      });
    },
  };
}

const [folder, ...words] = process.argv.slice(2);
const watching = words.includes("--watch");
if (!folder) throw new Error("usage: node build.mjs FOLDER [--watch]");
if (!existsSync(join(HERE, "src/main.tsx"))) throw new Error("there is no src/main.tsx");

const options = {
  absWorkingDir: HERE,
  entryPoints: [
    { in: "src/main.tsx", out: "app" },
    { in: "src/icon.svg", out: "icon" },
    { in: "src/index.html", out: "index" },
  ],
  entryNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  outdir: "out", // a name for the outputs; none is written there
  write: false,
  bundle: true,
  metafile: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".html": "copy", ".svg": "copy" },
  legalComments: "none", // licenses.txt has the whole texts
  minify: !watching,
  sourcemap: watching && "inline",
  logLevel: watching ? "info" : "warning",
  plugins: [writer(folder)],
};

if (watching) await (await esbuild.context(options)).watch();
else await esbuild.build(options).catch(() => process.exit(1)); // it has said why
