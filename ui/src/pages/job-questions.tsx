// The questions that a job asks, each with a form for its answer.

import { useState } from "preact/hooks";
import { act, asProblem, type Problem, refusal, session } from "../api";
import { Ago, Badge, Button, Panel, Trouble } from "../parts/basics";
import { Field } from "../parts/forms";
import { initialValue, type Schema, SchemaValue } from "../parts/inputs";
import { Json } from "../parts/json";
import { toast } from "../parts/toasts";
import { part } from "../router";
import type { Job, Question } from "../wire";
import "./job-questions.css";

interface QuestionsProps {
  job: Job;
  questions: readonly Question[];
  reload: () => void;
}

/** Open questions come first. */
export function Questions({ job, questions, reload }: QuestionsProps) {
  if (!questions.length) return null;
  const open = questions.filter((question) => isOpen(question));
  const rest = questions.filter((question) => !isOpen(question));
  return (
    <Panel title="Questions" aside={open.length > 0 && !job.outcome && <Badge tone="warn">{open.length} open</Badge>}>
      <ol class="job-questions">
        {[...open, ...rest].map((question) => (
          <li key={question.name}>
            <h3>{question.question}</h3>
            <p class="soft">
              <code>{question.name}</code>, asked <Ago at={question.asked_at} />
              {`, to be answered by ${answerer(question)}`}
              {isOpen(question) && question.due_at && (
                <>
                  , deadline <Ago at={question.due_at} />
                </>
              )}
            </p>
            {!isOpen(question) ? (
              <Answered question={question} />
            ) : job.outcome ? (
              <p class="soft">The job ended before it was answered.</p>
            ) : isLate(question) ? (
              <p class="soft">Nobody answered in time.</p>
            ) : (
              <AnswerForm job={job} question={question} reload={reload} />
            )}
          </li>
        ))}
      </ol>
    </Panel>
  );
}

function isOpen(question: Question): boolean {
  return question.answered_at === null;
}

function isLate(question: Question): boolean {
  return question.due_at !== null && new Date(question.due_at) <= new Date();
}

const ANSWERERS: Record<string, string> = { client: "clients", operator: "operators" };

function answerer(question: Question): string {
  return ANSWERERS[question.who] ?? `the key ${question.who}`;
}

/** Why the session may not answer. Operators may also answer for clients, but not for a certain key. */
function obstacle(question: Question): string | undefined {
  if (question.who.startsWith("key_") && question.who !== session.value?.actor)
    return `Only the key ${question.who} may answer this.`;
  return refusal("operator");
}

function Answered({ question }: { question: Question }) {
  return (
    <>
      <p>
        Answered <Ago at={question.answered_at} /> by <code>{question.answered_by}</code>:
      </p>
      <Json value={question.answer} label={`answer to ${question.name}`} />
    </>
  );
}

function AnswerForm({ job, question, reload }: { job: Job; question: Question; reload: () => void }) {
  const schema = question.schema as Schema | null;
  const [value, setValue] = useState<unknown>(() => (schema ? initialValue(schema) : undefined));
  const [problem, setProblem] = useState<Problem | null>(null);
  const because = obstacle(question);
  const errors = problem?.field ? { [problem.field]: problem.message } : {};
  const send = async () => {
    setProblem(null);
    try {
      const body = { question: question.name, answer: value };
      await act("POST", `jobs/${part(job.id)}/answer`, body, { query: { tenant: job.tenant } });
      toast("Answer sent.");
      reload();
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  if (because) return <p class="soft">{because}</p>;
  return (
    <form
      aria-label={question.question}
      onSubmit={(event) => {
        event.preventDefault();
        if (value !== undefined) void send();
      }}
    >
      {schema ? (
        <SchemaValue root={schema} errors={errors} label="Answer" path="answer" value={value} onChange={setValue} />
      ) : (
        <Field
          name="answer"
          label="Answer"
          type="area"
          hint="Text, or JSON."
          error={errors["answer"]}
          onInput={(text) => setValue(textOrJson(text))}
        />
      )}
      {problem && !isShown(problem, schema) && <Trouble problem={problem} />}
      <Button tone="main" disabled={value === undefined} onClick={send}>
        Send answer
      </Button>
    </form>
  );
}

/** Whether a field shows the problem. */
function isShown(problem: Problem, schema: Schema | null): boolean {
  return problem.field === "answer" && schema === null;
}

/** What was typed: JSON if it is that, or else text; undefined if nothing was. */
function textOrJson(text: string): unknown {
  if (!text.trim()) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
