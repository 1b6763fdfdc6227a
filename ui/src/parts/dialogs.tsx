// Dialogs: every action that changes something asks for confirmation, and says what it will do.

import { computed, effect, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem, type Problem } from "../api";
import { place } from "../router";
import { Copy, Trouble } from "./basics";
import { Field, type FieldSpec, readFields } from "./forms";
import { showProblem } from "./toasts";

interface ModalProps {
  title: string;
  /** Called when Escape is pressed. Without it, only the dialog's own buttons close it. */
  onEscape?: (() => void) | undefined;
  children: ComponentChildren;
}

/** A modal dialog. Browsers close a dialog at a second Escape even if it prevents that; it is then opened again. */
export function Modal({ title, onEscape, children }: ModalProps) {
  const box = useRef<HTMLDialogElement>(null);
  const show = () => box.current?.isConnected && !box.current.open && box.current.showModal();
  useEffect(() => {
    show();
    return () => box.current?.close();
  }, []);
  const cancel = (event: Event) => {
    if (event.target !== box.current) return;
    event.preventDefault();
    onEscape?.();
  };
  return (
    <dialog
      ref={box}
      aria-label={title}
      onCancel={cancel}
      onClose={show}
      onKeyDown={(event) => event.key === "Escape" && !onEscape && event.preventDefault()}
    >
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}

export interface Question {
  title: string;
  text?: ComponentChildren;
  /** The label of the button: a verb. */
  action: string;
  tone?: "main" | "bad";
  fields?: FieldSpec[];
  /** Shown below the fields, such as what the action would do with their values. */
  after?: ComponentChildren;
  /** Performs the action. If it fails, the dialog stays open with its input and shows the error. */
  act: (values: Record<string, string>) => Promise<unknown>;
}

/** A question whose dialog is open. `answer` is called with whether the action was performed. */
interface OpenQuestion {
  number: number;
  question: Question;
  isBusy: boolean;
  answer: (isDone: boolean) => void;
}

const open = signal<OpenQuestion | null>(null);
/** Whether a question is open; the list behind the dialog does not change meanwhile. */
export const isAsking = computed(() => open.value !== null);
let number = 0;

/** Ask for confirmation, and perform the action if it is given. Returns whether it was performed. */
export function ask(question: Question): Promise<boolean> {
  close(open.peek());
  return new Promise((answer) => {
    number += 1;
    open.value = { number, question, isBusy: false, answer };
  });
}

/** Close a question. An action that is already running continues, and reports a failure by itself. */
function close(asked: OpenQuestion | null): void {
  if (!asked) return;
  if (open.peek() === asked) open.value = null;
  if (!asked.isBusy) asked.answer(false);
}

// A question belongs to its page: opening another page closes it.
let path = place.peek().path;
effect(() => {
  if (place.value.path === path) return;
  path = place.value.path;
  close(open.peek());
});

export function Dialogs() {
  const asked = open.value;
  return asked ? <QuestionDialog key={asked.number} asked={asked} /> : null;
}

function QuestionDialog({ asked }: { asked: OpenQuestion }) {
  const { question } = asked;
  const [problem, setProblem] = useState<Problem | null>(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (asked.isBusy) return;
    asked.isBusy = true;
    setBusy(true);
    setProblem(null);
    try {
      await question.act(readFields(event.currentTarget as HTMLFormElement));
      if (open.peek() === asked) open.value = null;
      asked.answer(true);
    } catch (error) {
      asked.isBusy = false;
      setBusy(false);
      setProblem(asProblem(error));
      if (open.peek() === asked) return;
      showProblem(asProblem(error));
      asked.answer(false);
    }
  };
  const wrong = question.fields?.find((field) => field.name === problem?.field);
  return (
    <Modal title={question.title} onEscape={isBusy ? undefined : () => close(asked)}>
      <form onSubmit={submit} onInput={() => wrong && setProblem(null)}>
        {question.text && <div class="dialog-text">{question.text}</div>}
        {question.fields?.map((field) => (
          <Field key={field.name} {...field} error={field === wrong ? wordsOf(problem) : undefined} />
        ))}
        {question.after}
        {problem && !wrong && <Trouble problem={problem} />}
        <div class="acts">
          <button type="button" disabled={isBusy} onClick={() => close(asked)}>
            Cancel
          </button>
          <button type="submit" class={question.tone ?? "main"} disabled={isBusy} aria-busy={isBusy}>
            {question.action}
          </button>
        </div>
      </form>
    </Modal>
  );
}

function wordsOf(problem: Problem | null): string {
  return [problem?.message, problem?.hint].filter(Boolean).join(" ");
}

const secret = signal<{ title: string; text: string; value: string } | null>(null);

/** Show a secret that is shown only once. */
export function showSecret(title: string, text: string, value: string): void {
  secret.value = { title, text, value };
}

/** Only its button closes it, so that a stray key press does not lose the secret. */
export function Secrets() {
  const shown = secret.value;
  const field = useRef<HTMLInputElement>(null);
  if (!shown) return null;
  return (
    <Modal key={shown.value} title={shown.title}>
      <p class="dialog-text">{shown.text}</p>
      <input
        ref={field}
        class="secret"
        readOnly
        value={shown.value}
        aria-label={shown.title}
        onFocus={(event) => event.currentTarget.select()}
      />
      <div class="acts">
        <Copy text={shown.value} what="secret" label="Copy" onCopy={() => field.current?.select()} />
        <button type="button" class="main" onClick={() => (secret.value = null)}>
          Done
        </button>
      </div>
    </Modal>
  );
}
