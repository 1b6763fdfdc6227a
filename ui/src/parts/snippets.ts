// A job as something to paste: the request that would submit it again.

import { ROOT } from "../router";
import type { Job } from "../wire";

/** Where the API is, from outside. */
function base(): string {
  return location.origin + ROOT.replace(/\/ui$/, "");
}

type Given = Pick<Job, "kind" | "input" | "tenant" | "account" | "priority">;

/** For a shell: the key is read from the environment, so that it is not in the history. */
export function asCurl(job: Given): string {
  const body = {
    kind: job.kind,
    input: job.input,
    account: job.account,
    ...(job.priority ? { priority: job.priority } : {}),
  };
  const address = `${base()}/v1/jobs?tenant=${encodeURIComponent(job.tenant)}`;
  return [
    `curl -sS ${quoted(address)}`,
    `-H "Authorization: Bearer $MILLPOND_API_KEY"`,
    `-H 'Content-Type: application/json'`,
    `-d ${quoted(JSON.stringify(body))}`,
  ].join(" \\\n  ");
}

/** A word for a shell, whatever is in it. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** For Python: the client reads the key from MILLPOND_API_KEY. */
export function asPython(job: Given): string {
  const options = [
    `tenant=${literal(job.tenant)}`,
    `account=${literal(job.account)}`,
    ...(job.priority ? [`priority=${job.priority}`] : []),
  ].join(", ");
  return [
    "from millpond import Client",
    "",
    `with Client(${literal(base())}) as client:`,
    `    job = client.submit(${literal(job.kind)}, ${literal(job.input)}, ${options})`,
    "    print(job.id)",
    "",
  ].join("\n");
}

function literal(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") {
    const members = Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`);
    return `{${members.join(", ")}}`;
  }
  return JSON.stringify(value);
}
