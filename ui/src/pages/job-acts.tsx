// Actions on one job. Each asks for confirmation and says what will happen.

import { act, freshKey, Problem, refusal } from "../api";
import { Instant } from "../parts/basics";
import { ask } from "../parts/dialogs";
import type { FieldSpec } from "../parts/forms";
import { toast } from "../parts/toasts";
import { go, part } from "../router";
import type { Accepted, Canceled, Entry, Job, JobComposition, JobDetail, Refund } from "../wire";
import { credits, plain, shortId } from "../words";

/** An action, or the reason why it is not available. */
export type Action = (() => Promise<unknown>) | string;

/** Actions that do not apply to the job's state are null. */
export interface JobActs {
  retry: Action;
  cancel: Action;
  refund: Action | null;
  priority: Action | null;
  answer: Action | null;
}

interface Subject {
  job: Job;
  detail: JobDetail;
  reload: () => void;
}

export function actsOn(subject: Subject): JobActs {
  const { job, detail } = subject;
  const unless = (reason: string | false | null, action: (subject: Subject) => Promise<unknown>): Action =>
    refusal("operator") ?? (reason || (() => action(subject)));
  const isFinal =
    isInPlace(detail) && !retryTransitions(detail).some((transition) => transition.from_state === job.state);
  return {
    retry: unless(
      !job.outcome ? "The job has not ended yet." : isFinal && `Jobs in state ${plain(job.state)} cannot be retried.`,
      retry,
    ),
    cancel: unless(
      job.outcome ? "The job has already ended." : job.cancel_requested_at && "Cancellation was already requested.",
      cancel,
    ),
    refund: !job.captured
      ? null
      : (refusal("admin") ?? unless(refundable(subject) <= 0 && "The full price was already refunded.", refund)),
    priority: job.phase === "ready" || job.phase === "waiting" ? unless(null, prioritize) : null,
    // Questions have forms of their own on the page.
    answer: job.phase === "parked" && !job.waits_for ? unless(null, answer) : null,
  };
}

/** The transitions of a retry in place. In a lifecycle without any, a retry makes a new job. */
function retryTransitions(detail: JobDetail) {
  return detail.lifecycle?.transitions.filter((transition) => transition.event === "retried") ?? [];
}

function isInPlace(detail: JobDetail): boolean {
  return retryTransitions(detail).length > 0;
}

function path(job: Job, verb: string): string {
  return `jobs/${part(job.id)}/${verb}`;
}

/** The name of the job in the titles of dialogs. */
function named(job: Job): string {
  return `${job.kind} ${shortId(job.id)}`;
}

const EVEN_IF_SUCCEEDED: FieldSpec = {
  name: "even_if_succeeded",
  label: "Retry it even though it has succeeded",
  type: "check",
  required: true,
};

function retry({ job, detail, reload }: Subject): Promise<unknown> {
  const key = isInPlace(detail) ? {} : { key: freshKey() };
  return ask({
    title: `Retry ${named(job)}`,
    text: (
      <p>
        {isInPlace(detail) ? "The job runs again with the same input" : "A new job is created with the same input"}
        {job.price ? `. ${credits(job.price)} are held again in the wallet of ${job.account}.` : "."}
      </p>
    ),
    action: "Retry",
    fields: job.outcome === "succeeded" ? [EVEN_IF_SUCCEEDED] : [],
    act: async ({ even_if_succeeded }) => {
      const query = { tenant: job.tenant };
      const body = even_if_succeeded ? { even_if_succeeded: true } : undefined;
      const made = await act<Accepted>("POST", path(job, "retry"), body, { query, ...key });
      toast(made.id === job.id ? "Job retried." : "New job created.");
      if (made.id === job.id) reload();
      else go(`/jobs/${part(made.id)}`, { of: job.tenant });
    },
  });
}

function cancel({ job, detail, reload }: Subject): Promise<unknown> {
  const held = heldFor(job, detail.composition);
  return ask({
    title: `Cancel ${named(job)}`,
    text: (
      <p>
        {job.phase === "leased"
          ? "The worker is asked to stop and has a grace period to do so."
          : "The job is not running and ends immediately."}{" "}
        {held ? `The ${credits(held)} held for it are released to the wallet of ${job.account}. ` : ""}
        {hasOpenChildren(detail) && "Its children are canceled with it, unless they are detached."}
      </p>
    ),
    action: "Cancel job",
    tone: "bad",
    act: async () => {
      const query = { tenant: job.tenant };
      const canceled = await act<Canceled>("POST", path(job, "cancel"), undefined, { query });
      toast(canceled.is_accepted ? "Cancellation requested." : `The job had already ended: ${plain(canceled.state)}.`);
      reload();
    },
  });
}

/** What is held for a job that has not ended: its price, and what its children have not spent of its budget. */
export function heldFor(job: Job, composition: JobComposition | null): number {
  const budget = composition?.budget;
  return job.price + (budget ? budget.amount - budget.spent : 0);
}

function hasOpenChildren({ composition }: JobDetail): boolean {
  return composition !== null && composition.counts.ended < composition.counts.submitted;
}

export function isRefund(entry: Entry): boolean {
  return entry.type === "adjust" && (entry.reference ?? "").startsWith("refund:");
}

export function refunded(entries: readonly Entry[]): number {
  return entries.filter(isRefund).reduce((sum, entry) => sum + entry.available, 0);
}

function refundable({ job, detail }: Subject): number {
  return (job.captured ?? 0) - refunded(detail.entries);
}

function refund(subject: Subject): Promise<unknown> {
  const { job, reload } = subject;
  const limit = refundable(subject);
  const key = freshKey();
  return ask({
    title: `Refund ${named(job)}`,
    text: (
      <p>
        The job cost {credits(job.captured ?? 0)}. Up to {credits(limit)} can be refunded to the wallet of {job.account}
        . The job itself does not change.
      </p>
    ),
    action: "Refund",
    tone: "bad",
    fields: [
      { name: "amount", label: "Credits", type: "number", value: limit, min: 1, max: limit, required: true },
      { name: "reason", label: "Reason", required: true, hint: "Recorded in the ledger and the audit log." },
    ],
    act: async ({ amount, reason }) => {
      const body = { reason, amount: Number(amount) };
      const made = await act<Refund>("POST", path(job, "refund"), body, { query: { tenant: job.tenant }, key });
      toast(`Refunded ${credits(made.amount)}; ${credits(made.available)} available.`);
      reload();
    },
  });
}

function prioritize({ job, reload }: Subject): Promise<unknown> {
  return ask({
    title: `Change the priority of ${named(job)}`,
    text: <p>Ready jobs with a higher priority start first.</p>,
    action: "Change",
    fields: [
      { name: "priority", label: "Priority", type: "number", value: job.priority, min: -100, max: 100, required: true },
    ],
    act: async ({ priority }) => {
      await act("PUT", path(job, "priority"), { priority: Number(priority) }, { query: { tenant: job.tenant } });
      toast("Priority changed.");
      reload();
    },
  });
}

function answer({ job, reload }: Subject): Promise<unknown> {
  return ask({
    title: `Answer ${named(job)}`,
    text: (
      <p>
        The job is parked and waits for an answer, which is passed to its code
        {job.expires_at && (
          <>
            ; it waits until <Instant at={job.expires_at} />
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
        hint: "JSON. Enclose text in quotes.",
      },
    ],
    act: async (values) => {
      const body = { answer: parsed(values["answer"] ?? "") };
      await act("POST", path(job, "answer"), body, { query: { tenant: job.tenant } });
      toast("Answer sent.");
      reload();
    },
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const detail = `The answer is not valid JSON: ${(error as Error).message}.`;
    throw new Problem(0, { code: "invalid_json", field: "answer", detail }, null);
  }
}
