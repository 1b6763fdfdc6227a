// What can be done to one job. Each act says first what will happen.

import { act, freshKey, Problem, refusal } from "../api";
import { Moment } from "../parts/basics";
import { ask } from "../parts/dialogs";
import { toast } from "../parts/toasts";
import { go, part } from "../router";
import type { Accepted, Canceled, Dossier, Entry, Job, Refund } from "../wire";
import { credits, plain, shortId } from "../words";

/** An act, or why it cannot be done. */
export type Does = (() => Promise<unknown>) | string;

/** What would make no sense now is null. */
export interface JobActs {
  retry: Does;
  cancel: Does;
  refund: Does | null;
  priority: Does | null;
  answer: Does | null;
}

interface Subject {
  job: Job;
  dossier: Dossier;
  reload: () => void;
}

export function actsOn(subject: Subject): JobActs {
  const { job, dossier } = subject;
  const unless = (reason: string | false | null, does: (subject: Subject) => Promise<unknown>): Does =>
    refusal("operator") ?? (reason || (() => does(subject)));
  const isFinal = isInPlace(dossier) && !arrows(dossier).some((arrow) => arrow.from_state === job.state);
  return {
    retry: unless(
      !job.outcome ? "It has not ended yet." : isFinal && `A job that is ${plain(job.state)} is not retried.`,
      retry,
    ),
    cancel: unless(job.outcome ? "It has ended." : job.cancel_requested_at && "It was told to stop.", cancel),
    refund: !job.captured
      ? null
      : (refusal("admin") ?? unless(left(subject) <= 0 && "All of it was given back.", refund)),
    priority: job.phase === "ready" || job.phase === "waiting" ? unless(null, prioritize) : null,
    answer: job.phase === "parked" ? unless(null, answer) : null,
  };
}

/** The arrows that a retry takes: a lifecycle without any makes a new job of it. */
function arrows(dossier: Dossier) {
  return dossier.lifecycle?.moves.filter((arrow) => arrow.moment === "retried") ?? [];
}

function isInPlace(dossier: Dossier): boolean {
  return arrows(dossier).length > 0;
}

function path(job: Job, verb: string): string {
  return `jobs/${part(job.id)}/${verb}`;
}

/** Each dialog says which job it is about. */
function named(job: Job): string {
  return `${job.kind} ${shortId(job.id)}`;
}

function retry({ job, dossier, reload }: Subject): Promise<unknown> {
  const key = isInPlace(dossier) ? {} : { key: freshKey() };
  return ask({
    title: `Retry ${named(job)}`,
    text: (
      <p>
        {isInPlace(dossier)
          ? "This job is run once more, with the same input"
          : "A new job is made of it with the same input, and you are led there"}
        {job.price ? `; ${credits(job.price)} are held again in the wallet of ${job.account}.` : "."}
        {job.outcome === "succeeded" && " It has succeeded already."}
      </p>
    ),
    action: "Retry",
    act: async () => {
      const query = { tenant: job.tenant };
      const made = await act<Accepted>("POST", path(job, "retry"), undefined, { query, ...key });
      toast(made.id === job.id ? "It is run again." : "A new job was made of it.");
      if (made.id === job.id) reload();
      else go(`/jobs/${part(made.id)}`, { of: job.tenant });
    },
  });
}

function cancel({ job, reload }: Subject): Promise<unknown> {
  return ask({
    title: `Cancel ${named(job)}`,
    text: (
      <p>
        {job.phase === "leased"
          ? "Its worker is told to stop, and given a moment to do so."
          : "It ends at once, for nobody runs it."}{" "}
        {job.price ? `The ${credits(job.price)} that are held for it go back to the wallet of ${job.account}.` : ""}
      </p>
    ),
    action: "Cancel it",
    tone: "bad",
    act: async () => {
      const query = { tenant: job.tenant };
      const told = await act<Canceled>("POST", path(job, "cancel"), undefined, { query });
      toast(told.is_accepted ? "It was told to stop." : `It had ended before: ${plain(told.state)}.`);
      reload();
    },
  });
}

export function isRefund(entry: Entry): boolean {
  return entry.type === "adjust" && (entry.reference ?? "").startsWith("refund:");
}

export function refunded(entries: readonly Entry[]): number {
  return entries.filter(isRefund).reduce((sum, entry) => sum + entry.available, 0);
}

function left({ job, dossier }: Subject): number {
  return (job.captured ?? 0) - refunded(dossier.entries);
}

function refund(subject: Subject): Promise<unknown> {
  const { job, reload } = subject;
  const most = left(subject);
  const key = freshKey();
  return ask({
    title: `Refund ${named(job)}`,
    text: (
      <p>
        It has cost {credits(job.captured ?? 0)}; up to {credits(most)} go back to the wallet of {job.account}. The job
        stays as it is.
      </p>
    ),
    action: "Refund",
    tone: "bad",
    fields: [
      { name: "amount", label: "Credits", type: "number", value: most, min: 1, max: most, required: true },
      { name: "reason", label: "Reason", required: true, hint: "It stands in the ledger and the audit." },
    ],
    act: async ({ amount, reason }) => {
      const body = { reason, amount: Number(amount) };
      const told = await act<Refund>("POST", path(job, "refund"), body, { query: { tenant: job.tenant }, key });
      toast(`${credits(told.amount)} went back; ${credits(told.available)} are available.`);
      reload();
    },
  });
}

function prioritize({ job, reload }: Subject): Promise<unknown> {
  return ask({
    title: `Change the priority of ${named(job)}`,
    text: <p>Among the jobs that are ready, the highest goes first.</p>,
    action: "Change",
    fields: [
      { name: "priority", label: "Priority", type: "number", value: job.priority, min: -100, max: 100, required: true },
    ],
    act: async ({ priority }) => {
      await act("PUT", path(job, "priority"), { priority: Number(priority) }, { query: { tenant: job.tenant } });
      toast("Its priority was changed.");
      reload();
    },
  });
}

function answer({ job, reload }: Subject): Promise<unknown> {
  return ask({
    title: `Answer ${named(job)}`,
    text: (
      <p>
        It is parked and waits for an answer, which its code then gets
        {job.expires_at && (
          <>
            ; it waits until <Moment at={job.expires_at} />
          </>
        )}
        .
      </p>
    ),
    action: "Answer",
    fields: [
      {
        name: "answer",
        label: "Answer",
        type: "area",
        monospace: true,
        value: "{}",
        required: true,
        hint: "As JSON. Text stands in quotes.",
      },
    ],
    act: async (values) => {
      const body = { answer: parsed(values["answer"] ?? "") };
      await act("POST", path(job, "answer"), body, { query: { tenant: job.tenant } });
      toast("It was answered.");
      reload();
    },
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const detail = `It is not JSON: ${(error as Error).message}.`;
    throw new Problem(0, { code: "invalid_json", field: "answer", detail }, null);
  }
}
