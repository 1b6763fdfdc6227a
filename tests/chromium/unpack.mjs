// Unpacks the browser, its libraries and its fonts into this folder, and sees whether it starts on this machine.
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { inflate } from "@sparticuz/chromium";

process.env.TMPDIR = import.meta.dirname; // where it unpacks to
for (const name of ["chromium", "al2023.tar", "fonts.tar"]) {
  await inflate(`node_modules/@sparticuz/chromium/bin/${name}.br`);
}
rmSync("node_modules", { recursive: true });
execFileSync("./run", ["--version"]);
