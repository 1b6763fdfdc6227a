// Acts on many jobs: what would happen is looked up and said first, then it is done in the background, as an errand.

import { act, freshKey, refusal } from "../api";
import { go } from "../router";
import type { Errand, ErrandPreview, JobFilter, JobLine } from "../wire";
import { plain, plural } from "../words";
import { Credits, Moment, StateBadge } from "./basics";
import { ask } from "./dialogs";
import type { FieldSpec } from "./forms";
import { filterWords } from "./frame";
import { toast } from "./toasts";

export type Action = Exclude<Errand["action"], "verify">;

interface Plan {
  title: string;
  /** What the button says. */
  verb: string;
  /** What is done to each job. */
  tells: string;
  role: "operator" | "admin";
  fields: FieldSpec[];
  tone?: "bad";
}

const REASON: FieldSpec = {
  name: "reason",
  label: "Reason",
  hint: "It stands in the audit.",
};

const PLANS: Record<Action, Plan> = {
  retry: {
    title: "Retry",
    verb: "Retry them",
    tells:
      "Each of them that has ended is run once more, and its price is held again: also those that succeeded, so " +
      "filter by how they ended if that is not meant. Jobs that still run are refused and counted.",
    role: "operator",
    fields: [REASON],
  },
  cancel: {
    title: "Cancel",
    verb: "Cancel them",
    tells:
      "Those that wait end at once; those that run are told to stop. What they hold goes back to their wallets. " +
      "Jobs that have ended stay as they are.",
    role: "operator",
    fields: [REASON],
    tone: "bad",
  },
  refund: {
    title: "Refund",
    verb: "Refund them",
    tells: "What each of them has cost goes back to its wallet, at most once, with an entry in the ledger.",
    role: "admin",
    fields: [{ ...REASON, required: true, hint: "It stands in the audit, and beside every entry in the ledger." }],
    tone: "bad",
  },
  priority: {
    title: "Set the priority of",
    verb: "Change it",
    tells: "Those that still wait change their place in the line; the highest goes first.",
    role: "operator",
    fields: [
      { name: "priority", label: "Priority", type: "number", value: 10, min: -100, max: 100, required: true },
      REASON,
    ],
  },
  export: {
    title: "Export",
    verb: "Export",
    tells: "They are written to a file, which you can download when it is done. Nothing about them changes.",
    role: "operator",
    fields: [
      {
        name: "format",
        label: "Format",
        type: "select",
        value: "ndjson",
        options: [
          { value: "ndjson", label: "NDJSON: one object a line, with input and output" },
          { value: "csv", label: "CSV: one row a job, for a spreadsheet" },
        ],
      },
    ],
  },
};

export const ACTIONS = Object.keys(PLANS) as Action[];

/** Why whoever signed in may not do this; nothing where they may. */
export function forbidden(action: Action): string | undefined {
  return refusal(PLANS[action].role);
}

/** Ask the server which jobs are meant, say what will happen to them, order it, and go where it can be watched. */
export async function bulk(action: Action, filter: JobFilter): Promise<void> {
  const preview = await act<ErrandPreview>("POST", "errands/preview", { filter }).catch((error: Error) => {
    toast(error.message, "bad");
    return null;
  });
  if (!preview) return;
  if (!preview.matched && !preview.searched_to) {
    toast("No job fits: there is nothing to do.", "warn");
    return;
  }
  const plan = PLANS[action];
  const key = freshKey();
  const howMany = preview.is_capped ? "more than 10,000 jobs" : plural(preview.matched, "job");
  await ask({
    title: `${plan.title} ${howMany}`,
    text: <Preview tells={plan.tells} filter={filter} preview={preview} />,
    action: plan.verb,
    tone: plan.tone ?? "main",
    fields: plan.fields,
    act: async ({ reason, priority, format }) => {
      const body = {
        action,
        filter,
        all: !Object.keys(filter).length,
        ...(reason ? { reason } : {}),
        ...(priority ? { priority: Number(priority) } : {}),
        ...(format ? { format } : {}),
      };
      const made = await act<Errand>("POST", "errands", body, { key });
      go(`/errands/${made.id}`);
    },
  });
}

function Preview({ tells, filter, preview }: { tells: string; filter: JobFilter; preview: ErrandPreview }) {
  const more = preview.matched - preview.sample.length;
  return (
    <>
      <p>{tells}</p>
      <p class="soft">
        {filter.ids ? (
          "The jobs that you have selected"
        ) : (
          <>Filter: {filterWords({ ...filter }) || "none, so all jobs"}</>
        )}
        {preview.searched_to && (
          <>
            , counted back to <Moment at={preview.searched_to} />; older ones are looked at when it runs
          </>
        )}
        .
      </p>
      <ul class="bulk-sample">
        {preview.sample.map((line) => (
          <Sample key={line.id} line={line} />
        ))}
      </ul>
      {more > 0 && <p class="soft">… and {plural(more, "more", "more")}.</p>}
    </>
  );
}

function Sample({ line }: { line: JobLine }) {
  return (
    <li>
      <StateBadge state={line.state} phase={line.phase} outcome={line.outcome} /> {plain(line.kind)}{" "}
      <span class="soft">
        {line.tenant}/{line.account}
      </span>{" "}
      {line.price > 0 && <Credits value={line.captured ?? line.price} />}
    </li>
  );
}
