// Actions on many jobs: a preview shows which jobs match, then a bulk operation changes them in the background.

import { act, freshKey, refusal } from "../api";
import { go } from "../router";
import type { BulkOperation, BulkOperationPreview, JobFilter, JobSummary } from "../wire";
import { plain, plural } from "../words";
import { Credits, Instant, StateBadge } from "./basics";
import { ask } from "./dialogs";
import type { FieldSpec } from "./forms";
import { filterWords } from "./frame";
import { toast } from "./toasts";

export type Action = Exclude<BulkOperation["action"], "verify">;

interface Plan {
  title: string;
  /** The label of the button. */
  verb: string;
  /** What happens to each job. */
  effect: string;
  role: "operator" | "admin";
  fields: FieldSpec[];
  tone?: "bad";
}

const REASON: FieldSpec = {
  name: "reason",
  label: "Reason",
  hint: "Recorded in the audit log.",
};

const PLANS: Record<Action, Plan> = {
  retry: {
    title: "Retry",
    verb: "Retry",
    effect:
      "Every matching job that failed, expired or was canceled runs again, and its price is held again. Jobs that still " +
      "run are skipped and counted as refused, and so are jobs that succeeded, unless you include them.",
    role: "operator",
    fields: [{ name: "even_if_succeeded", label: "Include jobs that succeeded", type: "check" }, REASON],
  },
  cancel: {
    title: "Cancel",
    verb: "Cancel jobs",
    effect:
      "Waiting jobs end immediately; workers are asked to stop running jobs. Credits held for them are released. " +
      "Jobs that have ended do not change.",
    role: "operator",
    fields: [REASON],
    tone: "bad",
  },
  refund: {
    title: "Refund",
    verb: "Refund",
    effect: "The cost of each job is refunded to its wallet, at most once, and recorded in the ledger.",
    role: "admin",
    fields: [{ ...REASON, required: true, hint: "Recorded in the audit log and in every ledger entry." }],
    tone: "bad",
  },
  priority: {
    title: "Set the priority of",
    verb: "Change priority",
    effect: "Changes the position of waiting jobs in the queue. Jobs with a higher priority start first.",
    role: "operator",
    fields: [
      { name: "priority", label: "Priority", type: "number", value: 10, min: -100, max: 100, required: true },
      REASON,
    ],
  },
  export: {
    title: "Export",
    verb: "Export",
    effect: "The jobs are written to a file that you can download when the operation finishes. The jobs do not change.",
    role: "operator",
    fields: [
      {
        name: "format",
        label: "Format",
        type: "select",
        value: "ndjson",
        options: [
          { value: "ndjson", label: "NDJSON: one object per line, with input and output" },
          { value: "csv", label: "CSV: one row per job" },
        ],
      },
    ],
  },
};

export const ACTIONS = Object.keys(PLANS) as Action[];

/** Why the session may not perform the action; undefined if it may. */
export function forbidden(action: Action): string | undefined {
  return refusal(PLANS[action].role);
}

/** Preview the matching jobs, ask for confirmation, start the bulk operation, and open its page. */
export async function bulk(action: Action, filter: JobFilter): Promise<void> {
  const preview = await act<BulkOperationPreview>("POST", "bulk/preview", { filter }).catch((error: Error) => {
    toast(error.message, "bad");
    return null;
  });
  if (!preview) return;
  if (!preview.matched && !preview.searched_to) {
    toast("No jobs match; nothing to do.", "warn");
    return;
  }
  const plan = PLANS[action];
  const key = freshKey();
  const amount = preview.is_capped ? "more than 10,000 jobs" : plural(preview.matched, "job");
  await ask({
    title: `${plan.title} ${amount}`,
    text: <Preview effect={plan.effect} filter={filter} preview={preview} />,
    action: plan.verb,
    tone: plan.tone ?? "main",
    fields: plan.fields,
    act: async ({ reason, priority, format, even_if_succeeded }) => {
      const body = {
        action,
        filter,
        all: !Object.keys(filter).length,
        ...(reason ? { reason } : {}),
        ...(priority ? { priority: Number(priority) } : {}),
        ...(format ? { format } : {}),
        ...(even_if_succeeded ? { even_if_succeeded: true } : {}),
      };
      const made = await act<BulkOperation>("POST", "bulk", body, { key });
      go(`/bulk/${made.id}`);
    },
  });
}

function Preview({ effect, filter, preview }: { effect: string; filter: JobFilter; preview: BulkOperationPreview }) {
  const more = preview.matched - preview.sample.length;
  return (
    <>
      <p>{effect}</p>
      <p class="soft">
        {filter.ids ? "The selected jobs" : <>Filter: {filterWords({ ...filter }) || "none (all jobs)"}</>}
        {preview.searched_to && (
          <>
            , counted back to <Instant at={preview.searched_to} />; older jobs are searched when the operation runs
          </>
        )}
        .
      </p>
      <ul class="bulk-sample">
        {preview.sample.map((summary) => (
          <Sample key={summary.id} summary={summary} />
        ))}
      </ul>
      {more > 0 && <p class="soft">… and {plural(more, "more", "more")}.</p>}
    </>
  );
}

function Sample({ summary }: { summary: JobSummary }) {
  return (
    <li>
      <StateBadge state={summary.state} phase={summary.phase} outcome={summary.outcome} /> {plain(summary.kind)}{" "}
      <span class="soft">
        {summary.tenant}/{summary.account}
      </span>{" "}
      {summary.price > 0 && <Credits value={summary.captured ?? summary.price} />}
    </li>
  );
}
