// Code to paste elsewhere that submits a job again.

import { ROOT } from "../router";
import type { Job } from "../wire";

/** The public URL of the API. */
function base(): string {
  return location.origin + ROOT.replace(/\/ui$/, "");
}

type Submission = Pick<Job, "kind" | "input" | "tenant" | "account" | "priority">;

/** A curl command. It reads the key from the environment, to keep it out of the shell's history. */
export function asCurl(job: Submission): string {
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

/** A text quoted for a shell. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A Python program. Its client reads the key from MILLPOND_API_KEY. */
export function asPython(job: Submission): string {
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
