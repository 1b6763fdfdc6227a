// Bundles src/ into a folder: `node build.mjs FOLDER [--watch]`.
//
// The folder then contains index.html, app-HASH.js, app-HASH.css, icon-HASH.svg and licenses.txt, and nothing else. A
// file with a hash in its name can be cached for ever; index.html names these files, and contains `{root}`, which the
// server replaces.

import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import esbuild from "esbuild";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PACKAGE = /^node_modules\/(?:@[^/]+\/)?[^/]+/;
const LICENSE = /^(licen[cs]e|copying)(\.|$)/i;

/** The one output whose name matches; the page would not load a second script or style sheet. */
function only(names, form) {
  const found = names.filter((name) => form.test(name));
  if (found.length !== 1)
    throw new Error(`expected one file that matches ${form}, found: ${found.join(", ") || "none"}`);
  return found[0];
}

/** The page, with file names in place of its placeholders, each of which must be in the template. */
function page(template, names) {
  const parts = { icon: only(names, /^icon-.*\.svg$/), script: only(names, /\.js$/), style: only(names, /\.css$/) };
  if (!template.includes("{root}")) throw new Error("src/index.html does not contain {root}");
  return Object.entries(parts).reduce((text, [part, name]) => {
    if (!text.includes(`{${part}}`)) throw new Error(`src/index.html does not contain {${part}}`);
    return text.replaceAll(`{${part}}`, name);
  }, template);
}

/** The licences of the packages in the outputs, which must be distributed with them. */
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
  if (files.length === 0) throw new Error(`${name} is in the bundle, but has no licence file in ${folder}`);
  const texts = files.sort().map((file) => readFileSync(join(HERE, folder, file), "utf8").trim());
  return `${name} ${version} (${kind})\n\n${texts.join("\n\n")}\n`;
}

/** Updates the folder while a server may read it: new parts first, then the page; old parts are deleted at the end. */
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
if (!existsSync(join(HERE, "src/main.tsx"))) throw new Error("src/main.tsx does not exist");

const options = {
  absWorkingDir: HERE,
  entryPoints: [
    { in: "src/main.tsx", out: "app" },
    { in: "src/icon.svg", out: "icon" },
    { in: "src/index.html", out: "index" },
  ],
  entryNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  outdir: "out", // required for the names of the outputs; nothing is written there
  write: false,
  bundle: true,
  metafile: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".html": "copy", ".svg": "copy" },
  legalComments: "none", // licenses.txt contains the full texts
  minify: !watching,
  sourcemap: watching && "inline",
  logLevel: watching ? "info" : "warning",
  plugins: [writer(folder)],
};

if (watching) await (await esbuild.context(options)).watch();
else await esbuild.build(options).catch(() => process.exit(1)); // esbuild has printed the error
